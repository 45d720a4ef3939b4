// The nine tasks, each as the TOML text that a user could have written. Names of files are those of the
// Hugging Face datasets and of the authors' releases.
#include <string>
#include <vector>

#include "core/error.h"
#include "eval/task.h"

namespace ddl {
namespace {

// {0}: the name of the task, {1}: Easy or Challenge.
constexpr const char* kArc = R"toml(
task = "{0}"
version = 1.0
training_split = "train"
test_split = "test"
files.train = ["train", "ARC-{1}-Train", "ARC-{1}/train", "ARC-{1}/ARC-{1}-Train"]
files.test = ["test", "ARC-{1}-Test", "ARC-{1}/test", "ARC-{1}/ARC-{1}-Test"]
metrics = ["acc", "acc_norm"]

[[form]]
context = "Question: {{{{question}}}}\nAnswer:"
choices = "{{{{choices.text}}}}"
labels = "{{{{choices.label}}}}"
answer = "{{{{answerKey}}}}"

[[form]] # as the authors released it
context = "Question: {{{{question.stem}}}}\nAnswer:"
choices = "{{{{question.choices.text}}}}"
labels = "{{{{question.choices.label}}}}"
answer = "{{{{answerKey}}}}"
)toml";

constexpr const char* kHellaSwag = R"toml(
task = "hellaswag"
version = 1.0
training_split = "train"
validation_split = "validation"
files.train = ["train", "hellaswag_train", "data/train", "prepared_train"]
files.validation = ["validation", "val", "hellaswag_val", "data/validation", "prepared"]
metrics = ["acc", "acc_norm"]

[[form]]
context = "{{activity_label}}: {{ctx_a?}} {{ctx_b? | capitalize}}"
choices = "{{endings}}"
answer = "{{label}}"
clean = "wikihow"
identity = "{{split?}} {{ind?}}" # rows of two splits are never the same

[[form]] # rows that went through the steps above already
context = "{{query}}"
choices = "{{choices}}"
answer = "{{gold}}"
)toml";

constexpr const char* kOpenBookQa = R"toml(
task = "openbookqa"
version = 1.0
training_split = "train"
test_split = "test"
files.train = ["train", "main/train", "Data/Main/train"]
files.test = ["test", "main/test", "Data/Main/test"]
metrics = ["acc", "acc_norm"]

[[form]]
context = "{{question_stem}}"
choices = "{{choices.text}}"
labels = "{{choices.label}}"
answer = "{{answerKey}}"

[[form]] # as the authors released it
context = "{{question.stem}}"
choices = "{{question.choices.text}}"
labels = "{{question.choices.label}}"
answer = "{{answerKey}}"
)toml";

constexpr const char* kPiqa = R"toml(
task = "piqa"
version = 1.0
training_split = "train"
validation_split = "validation"
files.train = ["train", "data/train", "plain_text/train"]
files.validation = ["validation", "valid", "dev", "data/validation", "plain_text/validation"]
label_column = "label"
metrics = ["acc", "acc_norm"]
context = "Question: {{goal}}\nAnswer:"
choices = ["{{sol1}}", "{{sol2}}"]
answer = "{{label}}"
)toml";

constexpr const char* kSciQ = R"toml(
task = "sciq"
version = 1.0
training_split = "train"
test_split = "test"
files.train = ["train", "data/train"]
files.test = ["test", "data/test"]
metrics = ["acc", "acc_norm"]
context = "{{support | lstrip}}\nQuestion: {{question}}\nAnswer:"
choices = ["{{distractor1}}", "{{distractor2}}", "{{distractor3}}", "{{correct_answer}}"]
answer = "3"
)toml";

constexpr const char* kSocialIqa = R"toml(
task = "social_iqa"
version = 0.0
training_split = "train"
validation_split = "validation"
files.train = ["train", "data/train"]
files.validation = ["validation", "dev", "data/validation"]
label_column = "label"
metrics = ["acc"]
context = "Q: {{context}} {{question}}\nA:"
choices = ["{{answerA}}", "{{answerB}}", "{{answerC}}"]
labels = ["1", "2", "3"]
answer = "{{label}}"
)toml";

// The option stands in the context and what follows the blank is scored (Trinh and Le, 2018).
constexpr const char* kWinoGrande = R"toml(
task = "winogrande"
version = 1.0
training_split = "train"
validation_split = "validation"
files.train = ["train", "train_xl", "winogrande_xl/train"]
files.validation = ["validation", "dev", "winogrande_xl/validation"]
label_column = "answer"
metrics = ["acc"]
contexts = ["{{sentence | before_blank}}{{option1}}", "{{sentence | before_blank}}{{option2}}"]
continuation = "{{sentence | after_blank | strip}}"
labels = ["1", "2"]
answer = "{{answer}}"
)toml";

constexpr const char* kLambada = R"toml(
task = "lambada_openai"
version = 1.0
test_split = "test"
files.test = ["test", "lambada_test", "default/test", "data/test", "data/lambada_test"]
metrics = ["perplexity", "acc"]
context = "{{text | all_but_last_word}}"
continuation = " {{text | last_word}}"
)toml";

}  // namespace

const std::vector<Task>& builtin_tasks() {
  static const std::vector<Task> tasks = [] {
    const auto arc = [](const char* name, const char* config) {
      return fmt::format(fmt::runtime(kArc), name, config);
    };
    std::vector<Task> list;
    for (const std::string& toml :
         {arc("arc_challenge", "Challenge"), arc("arc_easy", "Easy"), std::string(kHellaSwag),
          std::string(kOpenBookQa), std::string(kPiqa), std::string(kSciQ), std::string(kSocialIqa),
          std::string(kWinoGrande), std::string(kLambada)})
      list.push_back(parse_task(toml, "built-in task"));
    return list;
  }();
  return tasks;
}

const std::vector<std::string>& paper_tasks() {
  static const std::vector<std::string> names = {"arc_challenge", "arc_easy", "hellaswag",  "openbookqa",
                                                 "piqa",          "sciq",     "social_iqa", "winogrande"};
  return names;
}

}  // namespace ddl
