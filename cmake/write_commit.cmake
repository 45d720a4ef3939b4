# cmake -DSOURCE=<repository> -DOUT=<header> -P write_commit.cmake: defines DDL_COMMIT, the commit the sources are at. The
# header is written only where it says something else than before, so that a build after which nothing changed compiles
# nothing.
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
find_program(GIT git)
if(GIT)
  set(git ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 ${GIT} -C ${SOURCE})
  # Empty at the top of a repository. Sources unpacked somewhere inside another one are at no commit of it.
  execute_process(COMMAND ${git} rev-parse --show-prefix RESULT_VARIABLE status OUTPUT_VARIABLE inside
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0 AND inside STREQUAL "")
    execute_process(COMMAND ${git} describe --always --dirty --exclude=* RESULT_VARIABLE status OUTPUT_VARIABLE described
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(status EQUAL 0)
      set(commit ${described})
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define DDL_COMMIT \"${commit}\"\n")
