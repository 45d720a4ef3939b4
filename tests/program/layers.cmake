# cmake -DSOURCE=<repository> -DWORK=<folder> -P layers.cmake: the layer check finds an upward include, a confined header
# and OpenMP outside core, each of them.
function(violation file line words)
  file(REMOVE_RECURSE ${WORK})
  file(WRITE ${WORK}/${file} "${line}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -DSRC=${WORK} -P ${SOURCE}/cmake/check_layers.cmake RESULT_VARIABLE code
                  ERROR_VARIABLE err)
  string(FIND "${err}" "${words}" found)
  if(code EQUAL 0 OR found EQUAL -1)
    message(SEND_ERROR "'${line}' in ${file}: expected '${words}', found ${code} ${err}")
  endif()
endfunction()

violation(kernels/a.cc "#include \"model/model.h\"" "includes model/")
violation(train/a.cc "#include \"infer/load.h\"" "includes infer/")
violation(model/a.h "#include <dnnl.hpp>" "is confined to")
violation(data/a.cc "#pragma omp parallel for" "OpenMP")
violation(new/a.cc "" "has no layer")

file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/model/a.cc "#include \"kernels/gemm.h\"\n#include \"model/b.h\"\n#include <vector>\n")
execute_process(COMMAND ${CMAKE_COMMAND} -DSRC=${WORK} -P ${SOURCE}/cmake/check_layers.cmake RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(SEND_ERROR "a downward include was refused")
endif()
file(REMOVE_RECURSE ${WORK})
