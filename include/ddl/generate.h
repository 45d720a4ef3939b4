// Text from a model.
//   generate          texts that continue a prompt, streamed
//   Decoder           the level below: sequences in slots, tokens appended, logits
//   Sampler           the next token from logits
#pragma once

#include "infer/decoder.h"
#include "infer/generate.h"
#include "infer/load.h"
#include "infer/sampler.h"
#include "infer/text_stream.h"
