// What a run may not change when it is resumed, and what it may.
#pragma once

#include <string>
#include <vector>

#include "core/record.h"
#include "data/dataset.h"
#include "model/stored_model.h"
#include "train/run_config.h"

namespace ddl {

// What the run was begun with: hash of the data and of the tokenizer. Stored in run.json and trainer.json.
Json run_identity(const Dataset& data);

// Throws UserError showing the difference where data or tokenizer are not those the run began with.
void check_identity(const Json& began_with, const Json& now, const std::string& run);

// A model's weights mean something only with the tokens it was trained on. Throws UserError where the data has others.
void check_same_tokens(const StoredModel& model, const Dataset& data);

// Options that differ. Throws UserError listing those among them that fix the model, the
// optimizer or the order of the data.
std::vector<OptionChange> allowed_changes(const RunConfig& before, const RunConfig& after);

}  // namespace ddl
