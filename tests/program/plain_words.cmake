# cmake -DSOURCE=<repository> -P plain_words.cmake: what the program says to a person is ordinary English. Looks for words
# in the strings of src/ and in the script ddl that have a plainer form.
set(words "beside|[Gg]oes on|[Gg]o on |residual interface|Residual interface|MFLOP a |tokens a step|bytes a token")
file(GLOB_RECURSE sources ${SOURCE}/src/*.cc ${SOURCE}/src/*.h)
foreach(file ${sources})
  file(STRINGS ${file} lines REGEX "^[^/]*\"[^\"]*(${words})[^\"]*\"")
  foreach(line ${lines})
    message(SEND_ERROR "${file}: ${line}")
  endforeach()
endforeach()
file(STRINGS ${SOURCE}/ddl lines REGEX "${words}")
foreach(line ${lines})
  message(SEND_ERROR "ddl: ${line}")
endforeach()
