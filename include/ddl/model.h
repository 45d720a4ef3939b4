// Models: what they are made of, and how they are kept, loaded, exported and imported.
//   load_model        a trained model and its tokenizer, from a run, a checkpoint or a folder
//   StoredModel       the same, configuration and weights only
//   make_model        a new one; plan_model says what it would cost
//   export_model, import_model
//   current_isa       the instruction set the kernels run with
#pragma once

#include "infer/exchange.h"
#include "infer/load.h"
#include "kernels/isa.h"
#include "model/config_json.h"
#include "model/model.h"
#include "model/stored_model.h"
