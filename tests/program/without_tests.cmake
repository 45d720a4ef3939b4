# cmake -DSOURCE=<repository> -DWORK=<folder> -P without_tests.cmake: with BUILD_TESTING=OFF the project is configured on a
# machine that has neither GoogleTest nor PCRE2, and builds no test.
file(REMOVE_RECURSE ${WORK})
find_program(PKG_CONFIG pkg-config REQUIRED)
file(WRITE ${WORK}/pkg-config "#!/bin/sh\ncase \"$*\" in *pcre2*) exit 1 ;; esac\nexec ${PKG_CONFIG} \"$@\"\n")
file(CHMOD ${WORK}/pkg-config PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

function(configure)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
                          -DPKG_CONFIG_EXECUTABLE=${WORK}/pkg-config ${ARGN}
                  RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  set(status ${status} PARENT_SCOPE)
  set(out "${out}" PARENT_SCOPE)
endfunction()

configure(-DBUILD_TESTING=OFF)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "BUILD_TESTING=OFF:\n${out}")
endif()
execute_process(COMMAND ninja -C ${WORK}/build -t targets all OUTPUT_VARIABLE targets COMMAND_ERROR_IS_FATAL ANY)
if(NOT targets MATCHES "ddl_program" OR targets MATCHES "(test|fuzz)_[a-z]+:")
  message(FATAL_ERROR "BUILD_TESTING=OFF builds:\n${targets}")
endif()
configure(-DBUILD_TESTING=ON)
if(status EQUAL 0)
  message(FATAL_ERROR "tests were configured without what they need: this test shows nothing")
endif()
file(REMOVE_RECURSE ${WORK})
