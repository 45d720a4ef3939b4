// A document with its few-shot examples before it, as text and as tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"
#include "data/tokenizer.h"
#include "eval/request.h"
#include "eval/task.h"

namespace ddl {

// What is asked of the model: a pair (context, continuation) for each choice.
struct Question {
  std::vector<std::string> contexts, continuations;  // as many as choices, or one for all
  std::vector<Index> choice_chars;                   // code points of each choice without what precedes it
  Index gold = 0;
  std::string place = {};  // of its document, for messages

  Index count() const { return std::max(std::ssize(contexts), std::ssize(continuations)); }
  const std::string& context(Index i) const {
    return contexts[contexts.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }
  const std::string& continuation(Index i) const {
    return continuations[continuations.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }
  std::string hash() const;  // 16 hex digits of everything above but the place
};

// Which examples of the pool each document is shown, drawn as the harness draws them: one generator for all
// documents, so those of a document depend on how many came before it.
// Throws UserError where the pool is too small.
std::vector<std::vector<Index>> draw_shots(const Task& task, std::span<const TaskDocument> documents,
                                           std::span<const TaskDocument> pool, Index shots);

// The document as it is shown to others: context, delimiter, right answer, delimiter.
std::string example_text(const Task& task, const TaskDocument& document);

Question make_question(const Task& task, const TaskDocument& document, const std::string& examples);

// One request per choice. White space at the end of a context moves to its continuation; context and
// continuation are tokenised together and cut at the length of the context tokenised alone. No token is put
// before a context, except where it is empty: the end-of-text token stands for it.
std::vector<ScoreRequest> encode_question(const Question& question, const Tokenizer& tokenizer);

}  // namespace ddl
