#include "eval/question.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "core/index.h"
#include "eval/python_random.h"
#include "eval/python_text.h"
#include "io/sha256.h"

namespace ddl {
namespace {

constexpr std::uint32_t kFewShotSeed = 1234;  // the harness's default

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return {ids.begin(), ids.end()};
}

ScoreRequest encode_without_context(std::string_view text, const Tokenizer& tokenizer) {
  const auto prefix = static_cast<std::int32_t>(tokenizer.end_of_text());
  ScoreRequest request{{prefix}, encode(tokenizer, text)};
  if (!request.continuation.empty() && request.continuation.front() == prefix)
    request.continuation.erase(request.continuation.begin());
  return request;
}

}  // namespace

std::string Question::hash() const {
  Sha256 sha;
  const auto add = [&](std::string_view text) {
    sha.update(fmt::format("{}:", text.size()));
    sha.update(text);
  };
  for (const auto* texts : {&contexts, &continuations}) {
    add(fmt::format("{}", texts->size()));
    for (const std::string& text : *texts) add(text);
  }
  for (const Index chars : choice_chars) add(fmt::format("{}", chars));
  add(fmt::format("{}", gold));
  return sha.hex().substr(0, 16);
}

std::vector<std::vector<Index>> draw_shots(const Task& task, std::span<const TaskDocument> documents,
                                           std::span<const TaskDocument> pool, Index shots) {
  std::vector<std::vector<Index>> shown(documents.size());
  if (shots == 0) return shown;  // draws nothing
  const Index drawn = shots + (task.draws_a_spare() ? 1 : 0);
  if (std::ssize(pool) < drawn)
    throw UserError("{}: {} shots draw {} examples, its {} split has {}", task.name, shots, drawn,
                    task.shot_split(), pool.size());
  PythonRandom random(kFewShotSeed);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    for (const Index example : random.sample(std::ssize(pool), drawn)) {
      if (task.draws_a_spare() && pool[static_cast<std::size_t>(example)] == documents[i]) continue;
      if (std::ssize(shown[i]) < shots) shown[i].push_back(example);
    }
  }
  return shown;
}

std::string example_text(const Task& task, const TaskDocument& document) {
  const auto gold = static_cast<std::size_t>(document.gold);
  const std::string& context = document.contexts[task.kind() == TaskKind::kContexts ? gold : 0];
  const std::string& answer = document.choices[task.kind() == TaskKind::kChoices ? gold : 0];
  return context + task.target_delimiter + answer + task.fewshot_delimiter;
}

Question make_question(const Task& task, const TaskDocument& document, const std::string& examples) {
  Question question;
  question.gold = document.gold;
  question.place = document.place;
  for (const std::string& context : document.contexts) question.contexts.push_back(examples + context);
  for (const std::string& choice : document.choices) {
    question.continuations.push_back(task.kind() == TaskKind::kLikelihood ? choice
                                                                          : task.target_delimiter + choice);
    question.choice_chars.push_back(code_points(choice));
  }
  return question;
}

std::vector<ScoreRequest> encode_question(const Question& question, const Tokenizer& tokenizer) {
  std::vector<ScoreRequest> requests;
  std::vector<std::int32_t> context_tokens;
  for (Index i = 0; i < question.count(); ++i) {
    const std::string text = question.context(i) + question.continuation(i);
    const std::string_view context = python_rstrip(question.context(i));
    if (context.empty()) {
      requests.push_back(encode_without_context(text, tokenizer));
      continue;
    }
    if (i == 0 || question.contexts.size() > 1) context_tokens = encode(tokenizer, context);
    const std::vector<std::int32_t> whole = encode(tokenizer, text);
    ScoreRequest request{context_tokens, {}};
    if (whole.size() > context_tokens.size())
      request.continuation.assign(whole.begin() + std::ssize(context_tokens), whole.end());
    requests.push_back(std::move(request));
  }
  for (const ScoreRequest& request : requests)
    if (request.continuation.empty())
      throw UserError("the tokenizer ({}) leaves no token of \"{}\" to score", tokenizer.name(),
                      question.continuation(&request - requests.data()));
  return requests;
}

}  // namespace ddl
