# The layer check: a folder of src/ includes only folders of a strictly lower layer, or itself; third-party headers
# that we confine are included only where they are allowed. Part of every build: a violation fails it.
add_custom_target(check_layers ALL
  COMMAND ${CMAKE_COMMAND} -DSRC=${PROJECT_SOURCE_DIR}/src -P ${PROJECT_SOURCE_DIR}/cmake/check_layers.cmake
  COMMENT "Checking layers")
