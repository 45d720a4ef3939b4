# Flags every target of the project shares. No -ffast-math (it would void exact gradients and repeatable bits) and
# no -march=native: instruction sets are chosen at run time (src/kernels), so one binary runs everywhere.
add_library(ddl_options INTERFACE)
target_compile_options(ddl_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -fno-math-errno
                       $<$<BOOL:${DDL_WERROR}>:-Werror>)
# g++ 12 warns of overlapping copies in plain string concatenation (its bug 105651), and of impossible string lengths
# once the string header is precompiled.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ddl_options INTERFACE -Wno-restrict -Wno-stringop-overflow)
endif()
# g++ searches its own memory for garbage whenever it has doubled from 128 MB on. Files that are compiled together need a few
# hundred: with 512 to begin with they compile 10% faster.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(ddl_options INTERFACE --param=ggc-min-heapsize=524288)
endif()
target_include_directories(ddl_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(DDL_SANITIZE)
  if(DDL_SANITIZE STREQUAL "address")
    set(ddl_sanitizers -fsanitize=address,undefined)
  elseif(DDL_SANITIZE STREQUAL "thread")
    # OpenMP's own synchronisation is known to the sanitizer only with clang's library (and its tool Archer).
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR "DDL_SANITIZE=thread needs clang, found ${CMAKE_CXX_COMPILER_ID}: use the preset tsan")
    endif()
    set(ddl_sanitizers -fsanitize=thread)
  else()
    message(FATAL_ERROR "DDL_SANITIZE: expected OFF, address or thread, found '${DDL_SANITIZE}'")
  endif()
  target_compile_options(ddl_options INTERFACE ${ddl_sanitizers} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer -DDDL_DEBUG_CHECKS=1)
  target_link_options(ddl_options INTERFACE ${ddl_sanitizers})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false alarms of g++ in the standard library, under sanitizers only
    target_compile_options(ddl_options INTERFACE -Wno-maybe-uninitialized -Wno-array-bounds)
  endif()
endif()
if(DDL_LIBFUZZER)  # the libraries must report which of their branches an input takes
  target_compile_options(ddl_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(ddl_options INTERFACE DDL_DEBUG_CHECKS=1)
endif()
