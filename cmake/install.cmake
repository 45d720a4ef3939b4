# cmake --install BUILD --prefix DIR: the program, the libraries, the public headers, and what find_package(ddl) needs.
# Users link ddl::ddl and include <ddl/ddl.h>, which includes nothing but the standard library.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(ddl_layers GLOBAL PROPERTY DDL_LAYERS)
add_library(ddl_everything INTERFACE)
set_target_properties(ddl_everything PROPERTIES EXPORT_NAME ddl)
target_link_libraries(ddl_everything INTERFACE ${ddl_layers})
file(GLOB public_headers CONFIGURE_DEPENDS include/ddl/*.h)
target_sources(ddl_everything INTERFACE FILE_SET HEADERS BASE_DIRS include FILES ${public_headers})
if(TARGET ddl_arrow)
  list(APPEND ddl_layers ddl_arrow)
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ddl)
install(TARGETS ${ddl_layers} ddl_everything EXPORT ddlTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/ddl
        FILE_SET HEADERS)
install(TARGETS ddl_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT ddlTargets NAMESPACE ddl:: DESTINATION ${package_folder})
configure_package_config_file(cmake/ddlConfig.cmake.in ${PROJECT_BINARY_DIR}/ddlConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddlConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ddlConfig.cmake ${PROJECT_BINARY_DIR}/ddlConfigVersion.cmake
        DESTINATION ${package_folder})
