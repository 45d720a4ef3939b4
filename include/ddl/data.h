// From text to tokens to batches.
//   load_tokenizer, train_bpe
//   generate_story, generate_overwrite, write_generated
//   prepare_dataset, Dataset, Loader
#pragma once

#include "data/bpe_train.h"
#include "data/dataset.h"
#include "data/generate.h"
#include "data/info.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/progress_line.h"
#include "data/tokenizer.h"
