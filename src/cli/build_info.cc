#include "cli/build_info.h"

#include "build_commit.h"  // written by every build, and only where it differs: cmake/write_commit.cmake

namespace ddl {

const BuildInfo kBuildInfo = {DDL_VERSION, DDL_COMMIT, DDL_COMPILER, DDL_BUILD_TYPE};

}  // namespace ddl
