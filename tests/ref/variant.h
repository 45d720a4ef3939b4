// The paper's rules by name, assembled from the oracle's pieces without the registry that the fast model has them from.
#pragma once

#include <string>

#include "core/error.h"
#include "ref/model.h"

namespace ddl::ref {

// The pieces of a named variant. Sizes of `config` are kept, except that baseline and the dv1 variants have
// D = 1.
inline Config with_variant(Config config, const std::string& name) {
  config.write = name == "baseline"        ? Write::additive
                 : name.starts_with("wo-") ? Write::write_only
                                           : Write::delta;
  const std::string kind = name == "baseline" ? "dv1" : name.substr(name.find('-') + 1);
  if (kind == "dv1") {
    config.channels = 1;
    config.expand = Expand::identity;
    config.read = Read::identity;
  } else {
    DDL_CHECK(kind == "cc" || kind == "tc" || kind == "cc-noec" || kind == "tc-noec", "unknown variant {}",
              name);
    config.expand = kind.ends_with("-noec") ? Expand::repeat : Expand::conv;
    config.read = kind.starts_with("cc") ? Read::channel : Read::token;
  }
  return config;
}

}  // namespace ddl::ref
