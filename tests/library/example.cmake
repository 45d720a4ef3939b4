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

# The public header, and which files the compiler reads for it: the installed ones and the standard library's.
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/library -B headers -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_PREFIX_PATH=${here}/prefix)
run(${CMAKE_COMMAND} --build headers)
run(ninja -C headers -t deps)
set(read "${output}")
if(NOT read MATCHES "${here}/prefix/include/ddl/ddl[.]h" OR read MATCHES "${SOURCE}/(src|include)/")
  message(FATAL_ERROR "the header is not the installed one:\n${read}")
endif()
string(REGEX MATCH "[^ \n]*/(fmt|nlohmann|hwy|dnnl|toml|CLI|omp[.]h|gtest)[^\n]*" leak "${read}")
if(leak)
  message(FATAL_ERROR "ddl/ddl.h reaches ${leak}")
endif()

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
run(${ddl} generate run --prompt "Once upon" --max-new-tokens 100 --temperature 0.8 --seed 7 --weights f32)
if(NOT by_library STREQUAL output OR NOT by_library MATCHES "^Once upon.")
  message(FATAL_ERROR "the example wrote\n${by_library}\nthe program\n${output}")
endif()
# Scores: one line per token, and the mean.
run(${here}/examples/score run "Once upon a time")
if(NOT output MATCHES "mean of 16 tokens, perplexity [0-9.]+")
  message(FATAL_ERROR "score wrote\n${output}")
endif()
run(${here}/examples/train data trained)
if(NOT output MATCHES "^20 steps, [0-9]+ records, trained")
  message(FATAL_ERROR "train wrote\n${output}")
endif()
run(${here}/headers/signal_stack run)
file(REMOVE_RECURSE ${here})
