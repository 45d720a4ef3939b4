// What a line means that a person types into `ddl generate`: a prompt, or a command that begins with a slash.
#pragma once

#include <functional>
#include <string>

#include "infer/generation.h"

namespace ddl {

class Conversation {
 public:
  // `answer` writes a text that continues the prompt, with the options as they are then; `gates` describes what
  // the gates did to the last text; `say` shows a line that is not text of the model.
  Conversation(GenerateOptions& options, std::function<void(const std::string&)> answer,
               std::function<std::string()> gates, std::function<void(const std::string&)> say)
      : options_(options), answer_(std::move(answer)), gates_(std::move(gates)), say_(std::move(say)) {}

  // False where the conversation ends. What cannot be done is said, and the conversation continues.
  bool take(const std::string& line);

 private:
  bool obey(const std::string& line);
  void ask(const std::string& prompt);

  GenerateOptions& options_;
  std::function<void(const std::string&)> answer_;
  std::function<std::string()> gates_;
  std::function<void(const std::string&)> say_;
  std::string last_;
  bool asked_ = false;
};

}  // namespace ddl
