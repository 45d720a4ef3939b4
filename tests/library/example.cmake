# The library as another project sees it: installs into a new prefix, builds examples/ with find_package(ddl), and runs
# it on a model made on the spot. What it writes must be what the installed program writes.
#   cmake -DSOURCE= -DBUILD= -DCOMPILER= -P example.cmake
cmake_minimum_required(VERSION 3.25)
set(here ${BUILD}/library_test)
file(REMOVE_RECURSE ${here})
file(MAKE_DIRECTORY ${here})

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${here} RESULT_VARIABLE status OUTPUT_VARIABLE out
                  ERROR_VARIABLE err)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${status}\n${out}${err}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${here}/prefix)

# All public headers in one file, and which files the compiler reads for it: nothing of the libraries that only our own
# sources use, whose templates would take seconds of every user's build.
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/library -B headers -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_PREFIX_PATH=${here}/prefix)
run(${CMAKE_COMMAND} --build headers)
run(ninja -C headers -t deps)
set(read "${output}")
if(NOT read MATCHES "${here}/prefix/include/ddl/[a-z_]+[.]h" OR read MATCHES "${SOURCE}/(src|include)/")
  message(FATAL_ERROR "the headers are not the installed ones:\n${read}")
endif()
string(REGEX MATCH "[^ \n]*/(hwy/|dnnl|toml|CLI/|omp[.]h|precompiled)[^\n]*" leak "${read}")
if(leak)
  message(FATAL_ERROR "a header in include/ddl reaches ${leak}")
endif()

# Whatever a command of the program uses can be had through a public header.
file(GLOB commands ${SOURCE}/src/cli/*.cc)
foreach(command IN LISTS commands)
  file(STRINGS ${command} includes REGEX "^#include \"[a-z]+/")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" header "${include}")
    string(FIND "${read}" "/include/ddl/internal/${header}\n" reached)
    if(NOT header MATCHES "^cli/" AND reached EQUAL -1)
      message(FATAL_ERROR "${command} uses ${header}, which no header in include/ddl reaches")
    endif()
  endforeach()
endforeach()

run(${CMAKE_COMMAND} -S ${SOURCE}/examples -B examples -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_PREFIX_PATH=${here}/prefix)
run(${CMAKE_COMMAND} --build examples)

set(ddl ${here}/prefix/bin/ddl)
run(${ddl} data generate stories --docs 40 --out stories.jsonl)
run(${ddl} data prepare stories.jsonl --tokenizer bytes --out data)
run(${ddl} train --data data --out run --set train.steps=2 --set train.batch=1 --set model.layers=1 --set model.width=32
    --set model.heads=2 --set log.floor=false --set eval.windows=1)
run(${here}/examples/generate run "Once upon")
set(by_library "${output}")
run(${ddl} generate run --prompt "Once upon" --max-new-tokens 100 --temperature 0.8 --seed 7)
if(NOT by_library STREQUAL output OR NOT by_library MATCHES "^Once upon.")
  message(FATAL_ERROR "the example wrote\n${by_library}\nthe program\n${output}")
endif()
file(REMOVE_RECURSE ${here})
