// Text in, text out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/exec.h"
#include "data/tokenizer.h"
#include "infer/sampler.h"
#include "model/decoder.h"

namespace ddl {

struct GenerateOptions {
  Index max_new_tokens = 256;
  SamplerOptions sampling = {};
  std::vector<std::string> stop = {};  // the text ends before the first of them
  bool slide = false;  // a full context continues with its last half, instead of ending the text
};

struct Generation {
  std::string text;  // valid UTF-8
  Index prompt_tokens = 0, new_tokens = 0;
  std::string ended;  // "length", "end of text", "stop string", "context"
};

// Told while it happens; texts are numbered from 0. Those that are not given are ignored.
inline constexpr auto kIgnoreEvent = [](auto&&...) {};
struct GenerateEvents {
  FunctionRef<void(Index, std::string_view)> text = kIgnoreEvent;
  FunctionRef<void(const std::string&)> notice = kIgnoreEvent;  // one sentence for a person
  FunctionRef<void(Index, const Generation&)> finished = kIgnoreEvent;
};

// `count` texts that continue the prompt (any bytes), side by side in the decoder's slots; count may exceed
// the number of slots. A prompt is read as a document's beginning: the end-of-text token goes before it, as
// in training. Throws UserError where the prompt does not fit the context and may not slide.
std::vector<Generation> generate(Decoder& decoder, const Tokenizer& tokenizer, std::string_view prompt,
                                 Index count, const GenerateOptions& options, const GenerateEvents& events,
                                 const Exec& ex);

}  // namespace ddl
