// Training.
//   run_training      a whole run in a folder: configuration, checkpoints, stop and resume
//   Trainer           the level below: one step at a time
#pragma once

#include "train/checkpoint.h"
#include "train/config.h"
#include "train/run.h"
#include "train/trainer.h"
