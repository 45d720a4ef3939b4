# Writes the CTest entries of a test program whose tests mostly differ by a value (TEST_P): one for every TEST and one for every
# TEST_P, which runs all its values. A process for each value would start oneDNN anew, which costs more than most of them.
#   cmake -DPROGRAM= -DFOLDER= -DPROPERTIES= -DOUT= -P entries.cmake
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE list COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" lines "${list}")
set(tests)
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)[.]( |$)")
    set(suite ${CMAKE_MATCH_1})
  elseif(line MATCHES "^  ([^ /]+/?)")  # Name, or Name/value
    list(APPEND tests ${suite}.${CMAKE_MATCH_1})
  endif()
endforeach()
list(REMOVE_DUPLICATES tests)
set(entries)
foreach(test IN LISTS tests)
  string(REGEX REPLACE "/$" "" name ${test})
  string(REGEX REPLACE "/$" "/*" filter ${test})
  # A test that skips itself is shown as skipped; among the values of a TEST_P one that skips would hide one that fails.
  set(skips)
  if(filter STREQUAL test)
    set(skips " SKIP_REGULAR_EXPRESSION [==[\\[  SKIPPED \\]]==]")
  endif()
  string(APPEND entries "add_test([[${FOLDER}.${name}]] [[${PROGRAM}]] [[--gtest_filter=${filter}]])\n"
         "set_tests_properties([[${FOLDER}.${name}]] PROPERTIES ${PROPERTIES}${skips})\n")
endforeach()
file(WRITE ${OUT} "${entries}")
