// What a run, a checkpoint or a model's folder is, in one screen: for `ddl info`.
#pragma once

#include <map>
#include <string>

#include "core/record.h"
#include "model/params.h"

namespace ddl {

// Variant, sizes, cost, training so far, losses, data, and the commands to run next. A run need not
// have a checkpoint yet. Throws UserError where `path` is none of these, or damaged.
Json describe_model(const std::string& path);
std::string model_screen(const Json& description);

// "attention", "MLP", ...: how many parameters each has.
std::map<std::string, Index> parameters_by_part(const ParamTable& table);

}  // namespace ddl
