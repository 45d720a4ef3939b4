// ./ddl version, or ./ddl --version: what to say in a report of a bug or next to a measurement.
#include <cstdio>
#include <memory>

#include "cli/build_info.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/record.h"
#include "model/instruction_set.h"

namespace ddl {

void add_version_command(Command app) {
  auto json = std::make_shared<bool>(false);
  Command version =
      app.add_command("version", "Version, commit, compiler and instruction sets (or --version)");
  version.add_flag("--json", *json, "One JSON record");
  version.on_run([json] {
    if (*json) {
      Json record = make_record("version");
      record["version"] = kBuildInfo.version;
      record["commit"] = kBuildInfo.commit;
      record["compiler"] = kBuildInfo.compiler;
      record["build_type"] = kBuildInfo.build_type;
      record["isa"] = current_isa();
      record["available_isas"] = available_isas();
      std::puts(to_line(record).c_str());
      return;
    }
    fmt::print("ddl {}\n", kBuildInfo.version);
    fmt::print("commit           {}\n", kBuildInfo.commit);
    fmt::print("compiler         {}\n", kBuildInfo.compiler);
    fmt::print("build type       {}\n", kBuildInfo.build_type);
    fmt::print("instruction set  {} (available: {})\n", current_isa(), fmt::join(available_isas(), ", "));
  });
}

}  // namespace ddl
