// What this program was made of.
#pragma once

namespace ddl {

struct BuildInfo {
  const char* version;     // of the project, "0.1.0"
  const char* commit;      // short; "-dirty" behind it where files were changed; "unknown" outside git
  const char* compiler;    // name and version
  const char* build_type;  // "Release"
};

// Defined in a file of its own: the commit changes often, and nothing else is then compiled again.
extern const BuildInfo kBuildInfo;

}  // namespace ddl
