# LibTorch from `./ddl setup torch`, for the plugin libddl_torch.so; the build works without it. Its own find_package(Torch)
# would demand CUDA. Defines the target ddl_libtorch where the part is there, and ddl_libnccl besides where ./ddl setup cuda was
# run: torch's CUDA half and NCCL, linked only by what calls them itself.
set(DDL_PARTS ${PROJECT_SOURCE_DIR}/build/parts CACHE PATH "Where ./ddl setup puts the optional parts")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${DDL_PARTS}/torch.version ${DDL_PARTS}/cuda.version)
if(EXISTS ${DDL_PARTS}/torch.version AND NOT DDL_SANITIZE)
  set(torch ${DDL_PARTS}/torch)
  foreach(name c10 torch_cpu c10_cuda torch_cuda)
    add_library(ddl_lib${name} SHARED IMPORTED)
    set_target_properties(ddl_lib${name} PROPERTIES IMPORTED_LOCATION ${torch}/lib/lib${name}.so)
  endforeach()
  add_library(ddl_libtorch INTERFACE)
  # Behind the system's folders: the wheel brings an fmt and a oneDNN of its own, and we have ours.
  target_compile_options(ddl_libtorch INTERFACE "SHELL:-idirafter ${torch}/include"
                         "SHELL:-idirafter ${torch}/include/torch/csrc/api/include")
  target_compile_definitions(ddl_libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(ddl_libtorch INTERFACE ddl_libtorch_cpu ddl_libc10)
  target_link_options(ddl_libtorch INTERFACE LINKER:-rpath,${torch}/lib LINKER:-rpath,${DDL_PARTS}/nvidia/cu13/lib)
  if(EXISTS ${DDL_PARTS}/cuda.version)
    add_library(ddl_libnccl INTERFACE)
    # Before the system's folders: torch's classes hold structures of NCCL, whose size is another in another version.
    target_compile_options(ddl_libnccl INTERFACE -I${DDL_PARTS}/nvidia/cu13/include -I${DDL_PARTS}/nvidia/nccl/include)
    target_compile_definitions(ddl_libnccl INTERFACE USE_C10D_NCCL)
    target_link_libraries(ddl_libnccl INTERFACE ddl_libtorch ddl_libtorch_cuda ddl_libc10_cuda
                          ${DDL_PARTS}/nvidia/nccl/lib/libnccl.so.2)
    target_link_options(ddl_libnccl INTERFACE LINKER:-rpath,${DDL_PARTS}/nvidia/nccl/lib)
  endif()
  file(STRINGS ${DDL_PARTS}/torch.version torch_version LIMIT_COUNT 1)
  string(REGEX REPLACE "^torch ([^ ]*) .*" "\\1" DDL_TORCH_VERSION "${torch_version}")
  message(STATUS "Torch: ${DDL_TORCH_VERSION} (${torch})")
else()
  message(STATUS "Torch: off (./ddl setup torch gets it)")
endif()
