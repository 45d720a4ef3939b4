// Rows to prompts: the strings of the harness, task by task, and what is refused.
#include "eval/task.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "eval/eval_testing.h"
#include "eval/question.h"
#include "test_folder.h"

namespace ddl {
namespace {

using Texts = std::vector<std::string>;

TaskDocument fill(const std::string& task, const std::string& row) {
  const Json json = parse_json(row);
  for (const TaskForm& form : builtin(task).forms)
    if (form.fits(json)) return form.fill(json);
  ADD_FAILURE() << task << ": no form fits " << row;
  return {};
}

TEST(TextFilter, HellaSwagVectors) {
  const TextFilter clean = find_text_filter("wikihow");
  EXPECT_EQ(clean("[title] Rinse the rug. [step] Use water."), " Rinse the rug. Use water.");
  EXPECT_EQ(clean("Use  soap   and water."), "Use soap  and water.");
  EXPECT_EQ(clean("[substeps] Dry it."), " Dry it.");
  EXPECT_EQ(clean(" Wait [note]."), "Wait .");
  EXPECT_EQ(clean("a    b"), "a  b");
  EXPECT_EQ(clean("a     b"), "a   b");
  EXPECT_EQ(clean("a [b [c] d] e [f\n] g [h]"), "a d] e [f\n] g ");
  EXPECT_EQ(clean("[open"), "[open");
  EXPECT_EQ(clean("\xc2\xa0 x\n"), "x");
}

TEST(TextFilter, HellaSwagRows) {
  const auto query = [](const std::string& label, const std::string& a, const std::string& b) {
    const Json row = {{"activity_label", label},
                      {"ctx_a", a},
                      {"ctx_b", b},
                      {"endings", {"w", "x", "y", "z"}},
                      {"label", "2"}};
    return fill("hellaswag", to_line(row)).contexts.front();
  };
  EXPECT_EQ(query("Roof shingle removal", "A man is sitting on a roof.", "he"),
            "Roof shingle removal: A man is sitting on a roof. He");
  EXPECT_EQ(query("Home and Garden",
                  "[header] How to clean a rug [title] Pick a brush. [step] Use a soft brush. [substeps] "
                  "Avoid wire.  "
                  "Rinse.",
                  ""),
            "Home and Garden: How to clean a rug. Pick a brush. Use a soft brush. Avoid wire. Rinse.");
  EXPECT_EQ(query("Food", "[header] How to boil [title] Fill the pot [step]", ""),
            "Food: How to boil. Fill the pot ");
  EXPECT_EQ(query("Food", "x", "the MAN in Paris"), "Food: x The man in paris");
}

TEST(TextFilter, WordsEndAtSpacesOnly) {
  EXPECT_EQ(find_text_filter("last_word")("one two\nthree"), "two\nthree");
  EXPECT_EQ(find_text_filter("all_but_last_word")("one two\nthree"), "one");
  EXPECT_EQ(find_text_filter("all_but_last_word")("one  two"), "one ");
  EXPECT_EQ(find_text_filter("last_word")("one"), "one");
  EXPECT_EQ(find_text_filter("all_but_last_word")("one"), "");
  EXPECT_EQ(find_text_filter("last_word")("one "), "");
}

TEST(BuiltinTasks, Arc) {
  const TaskDocument d = fill(
      "arc_easy",
      R"({"id":"x","question":"Why?","choices":{"text":["a","b","c"],"label":["1","2","3"]},"answerKey":"3"})");
  EXPECT_EQ(d, (TaskDocument{{"Question: Why?\nAnswer:"}, {"a", "b", "c"}, 2}));
  const TaskDocument raw =
      fill("arc_challenge", R"({"id":"x","question":{"stem":"Why?","choices":[{"text":"a","label":"A"},)"
                            R"({"text":"b","label":"B"},{"text":"c","label":"C"}]},"answerKey":"C"})");
  EXPECT_EQ(raw, d);
}

TEST(BuiltinTasks, HellaSwagKeepsItsOddSpaces) {
  const TaskDocument d =
      fill("hellaswag", R"({"ind":4,"activity_label":"Food","ctx_a":"A pot.","ctx_b":"","ctx":"no",)"
                        R"("endings":["[title] Rinse the rug. [step] Use water.","b","c","d"],)"
                        R"("label":"0"})");
  EXPECT_EQ(d.contexts, Texts{"Food: A pot."});
  EXPECT_EQ(d.choices.front(), " Rinse the rug. Use water.");
  EXPECT_EQ(d.gold, 0);
  const Question q = make_question(builtin("hellaswag"), d, "");
  EXPECT_EQ(q.continuation(0), "  Rinse the rug. Use water.");
  EXPECT_EQ(q.choice_chars[0], 26);
  EXPECT_EQ(fill("hellaswag", R"({"activity_label":"F","endings":["a","b"],"label":1})").contexts,
            Texts{"F:"});
  EXPECT_EQ(fill("hellaswag", R"({"query":"q ","choices":["a"," b"],"gold":1})"),
            (TaskDocument{{"q "}, {"a", " b"}, 1}));
}

TEST(BuiltinTasks, OpenBookQa) {
  const TaskDocument d = fill("openbookqa", R"({"id":"1","question_stem":"The sun is","choices":)"
                                            R"({"text":["hot","cold"],"label":["A","B"]},"answerKey":" A"})");
  EXPECT_EQ(d, (TaskDocument{{"The sun is"}, {"hot", "cold"}, 0}));
  EXPECT_EQ(fill("openbookqa", R"({"question":{"stem":"The sun is","choices":[{"text":"hot","label":"A"},)"
                               R"({"text":"cold","label":"B"}]},"answerKey":"A"})"),
            d);
}

TEST(BuiltinTasks, PiqaStaysDirty) {
  const TaskDocument d = fill("piqa", R"({"goal":"dresser ","sol1":" pin ","sol2":"its  ok","label":1})");
  EXPECT_EQ(d, (TaskDocument{{"Question: dresser \nAnswer:"}, {" pin ", "its  ok"}, 1}));
}

TEST(BuiltinTasks, SciQ) {
  const std::string row =
      R"({"question":"What?","distractor3":"d3","distractor1":"d1","distractor2":"d2","correct_answer":"yes",)";
  EXPECT_EQ(fill("sciq", row + R"("support":"\n Text. "})"),
            (TaskDocument{{"Text. \nQuestion: What?\nAnswer:"}, {"d1", "d2", "d3", "yes"}, 3}));
  EXPECT_EQ(fill("sciq", row + R"("support":""})").contexts, Texts{"\nQuestion: What?\nAnswer:"});
}

TEST(BuiltinTasks, SocialIqa) {
  EXPECT_EQ(fill("social_iqa", R"({"context":"C.","question":"Q?","answerA":"a","answerB":"b","answerC":"c",)"
                               R"("label":"3\n"})"),
            (TaskDocument{{"Q: C. Q?\nA:"}, {"a", "b", "c"}, 2}));
}

TEST(BuiltinTasks, WinoGrandePutsTheOptionInTheContext) {
  const Task& task = builtin("winogrande");
  const TaskDocument d =
      fill("winogrande",
           R"({"sentence":"Ann beat Bea so _ 's happy _ .","option1":"Ann","option2":"Bea","answer":"2"})");
  EXPECT_EQ(d, (TaskDocument{{"Ann beat Bea so Ann", "Ann beat Bea so Bea"}, {"'s happy _ ."}, 1}));
  const Question q = make_question(task, d, "");
  EXPECT_EQ(q.continuation(0), " 's happy _ .");
  EXPECT_EQ(q.continuation(1), q.continuation(0));
  EXPECT_EQ(
      fill("winogrande", R"({"sentence":"It was _.","option1":"a","option2":"b","answer":"1"})").choices,
      Texts{"."});
}

TEST(BuiltinTasks, Lambada) {
  const TaskDocument d = fill("lambada_openai", R"({"text":"I don't care\n\nabout signs"})");
  EXPECT_EQ(d, (TaskDocument{{"I don't care\n\nabout"}, {" signs"}, 0}));
  EXPECT_EQ(make_question(builtin("lambada_openai"), d, "").continuation(0),
            " signs");  // no delimiter before it
}

TEST(BuiltinTasks, SplitsMetricsAndVersions) {
  for (const Task& task : builtin_tasks()) {
    SCOPED_TRACE(task.name);
    const bool on_test = task.name.starts_with("arc_") || task.name == "openbookqa" || task.name == "sciq" ||
                         task.name == "lambada_openai";
    EXPECT_EQ(task.eval_split(), on_test ? "test" : "validation");
    EXPECT_EQ(task.draws_a_spare(), !on_test);
    EXPECT_EQ(task.shot_split(), task.name == "lambada_openai" ? "test" : "train");
    EXPECT_EQ(task.version, task.name == "social_iqa" ? 0.0 : 1.0);
    const std::vector<Metric> both = {Metric::kAccuracy, Metric::kNormalisedAccuracy},
                              acc = {Metric::kAccuracy}, word = {Metric::kPerplexity, Metric::kAccuracy};
    EXPECT_EQ(task.metrics, task.name == "social_iqa" || task.name == "winogrande" ? acc
                            : task.name == "lambada_openai"                        ? word
                                                                                   : both);
  }
  EXPECT_EQ(builtin_tasks().size(), 9u);
}

std::string refusal(const std::string& task, const std::string& row) {
  return message_of<UserError>([&] {
    const Json json = parse_json(row);
    builtin(task).forms.front().fill(json);
  });
}

TEST(BuiltinTasks, RefuseBadRows) {
  EXPECT_EQ(refusal("piqa", R"({"goal":"g","sol1":"a","sol2":"b","label":2})"),
            "the answer '2' is none of 0, 1");
  EXPECT_EQ(refusal("piqa", R"({"goal":"g","sol1":"a","sol2":"b","label":-1})"),
            "the answer '-1' is none of 0, 1");
  EXPECT_EQ(refusal("piqa", R"({"goal":"g","sol1":"","sol2":"b","label":0})"), "choice 1 is empty");
  EXPECT_TRUE(
      contains(refusal("piqa", R"({"goal":7.5,"sol1":"a","sol2":"b","label":0})"), "'goal' is a fraction"));
  EXPECT_TRUE(
      contains(refusal("piqa", R"({"goal":"g","sol1":["a"],"sol2":"b","label":0})"), "'sol1' is a list"));
  EXPECT_TRUE(
      contains(refusal("piqa", R"({"goal":"g","sol1":"a","sol2":"b","label":null})"), "'label' is null"));
  const std::string arc = R"({"question":"Why?","choices":)";
  EXPECT_EQ(refusal("arc_easy", arc + R"({"text":["a","b"],"label":["A","B"]},"answerKey":"C"})"),
            "the answer 'C' is none of A, B");
  EXPECT_EQ(refusal("arc_easy", arc + R"({"text":[],"label":[]},"answerKey":"A"})"),
            "0 choices, expected two or more");
  EXPECT_EQ(refusal("arc_easy", arc + R"({"text":["a","b"],"label":["A"]},"answerKey":"A"})"),
            "2 choices, but 1 labels");
  EXPECT_TRUE(contains(refusal("arc_easy", arc + R"({"text":"a","label":["A"]},"answerKey":"A"})"),
                       "'choices.text' is a string, expected a list"));
  EXPECT_TRUE(contains(refusal("arc_easy", arc + R"({"text":["a",{}],"label":["A","B"]},"answerKey":"A"})"),
                       "'choices.text' is an object"));
  EXPECT_TRUE(
      contains(refusal("arc_easy", arc + R"([{"text":"a"},{"label":"b"}],"answerKey":"A"})"), "is missing"));
  EXPECT_TRUE(contains(refusal("winogrande", R"({"sentence":"no","option1":"a","option2":"b","answer":"1"})"),
                       "no '_'"));
  EXPECT_TRUE(
      contains(refusal("winogrande", R"({"sentence":"a _ ","option1":"a","option2":"b","answer":"1"})"),
               "continuation is empty"));
  EXPECT_TRUE(contains(refusal("social_iqa", R"({"context":"c","question":"q","answerA":"a","answerB":"b",)"
                                             R"("answerC":"c","label":"0"})"),
                       "'0' is none of 1, 2, 3"));
}

constexpr const char* kCapitals = R"toml(
task = "capitals"
version = 2
validation_split = "dev"
metrics = ["acc", "acc_norm"]
context = "The capital of {{country | strip}} is"
choices = "{{cities}}"
answer = "{{right}}"
)toml";

std::string task_error(const std::string& toml) {
  return message_of<UserError>([&] { parse_task(toml, "my.toml"); });
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kCapitals;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(CustomTask, IsReadFromToml) {
  const Task task = parse_task(kCapitals, "my.toml");
  EXPECT_EQ(task.name, "capitals");
  EXPECT_EQ(task.version, 2);
  EXPECT_EQ(task.eval_split(), "dev");
  EXPECT_EQ(task.file_names("dev"), Texts{"dev"});
  const Json row = parse_json(R"({"country":" Peru ","cities":["Lima","Quito"],"right":0})");
  EXPECT_EQ(task.forms.front().fill(row), (TaskDocument{{"The capital of Peru is"}, {"Lima", "Quito"}, 0}));
}

TEST(CustomTask, ErrorsNameFileAndKey) {
  EXPECT_TRUE(contains(task_error(with("context", "contxt")),
                       "my.toml: unknown key 'contxt'; did you mean 'context'?"));
  EXPECT_TRUE(contains(task_error(with("version = 2", "version = ")), "my.toml:3: not valid TOML"));
  EXPECT_TRUE(contains(task_error(with("version = 2", "version = 2026-01-01")), "my.toml:3: dates"));
  EXPECT_TRUE(
      contains(task_error(with("| strip", "| stripp")), "unknown filter 'stripp'; did you mean 'strip'?"));
  EXPECT_TRUE(contains(task_error(with("| strip}}", "| strip")), "without its }}"));
  EXPECT_TRUE(contains(task_error(with("{{country | strip}}", "{{ }}")), "names no column"));
  EXPECT_TRUE(
      contains(task_error(with("\"acc_norm\"", "\"f1\"")), "'f1' is not a metric of this kind of task"));
  EXPECT_TRUE(contains(task_error(with("\"acc_norm\"", "\"perplexity\"")), "there are acc, acc_norm"));
  EXPECT_TRUE(contains(task_error(with("validation_split = \"dev\"", "")),
                       "expected test_split or validation_split"));
  EXPECT_TRUE(contains(task_error(with("answer = \"{{right}}\"", "")), "expected answer"));
  EXPECT_TRUE(contains(task_error(with("\"{{cities}}\"", "\"x {{cities}}\"")),
                       "choices: \"x {{cities}}\": expected one column"));
  EXPECT_TRUE(contains(task_error(with("\"{{cities}}\"", "[1]")),
                       "choices: a list of templates holds a whole number"));
  EXPECT_TRUE(contains(task_error(with("\"{{cities}}\"", "7")), "choices: expected a column"));
  EXPECT_TRUE(contains(task_error(with("\"capitals\"", "\"../x\"")), "expected a name of letters"));
  EXPECT_TRUE(contains(task_error(with("\"capitals\"", "\"all\"")), "expected a name of letters"));
  EXPECT_TRUE(
      contains(task_error(with("choices = \"{{cities}}\"", "choices = [\"{{a}}\"]\ncontinuation = \"b\"")),
               "expected context and choices, or"));
  EXPECT_TRUE(contains(task_error(with("metrics = [\"acc\", \"acc_norm\"]", "metrics = \"acc\"")),
                       "metrics: expected a list"));
  EXPECT_TRUE(contains(task_error(with("version = 2", "files.test = [\"x\"]")), "names no split 'test'"));
  EXPECT_TRUE(contains(task_error(std::string(kCapitals) + "[[form]]\ncontext = \"a\"\n"),
                       "stands outside [[form]]"));
}

}  // namespace
}  // namespace ddl
