// Task files: any bytes give documents or a UserError, and a document is one that can be asked.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "eval/question.h"
#include "eval/task_rows.h"
#include "fuzz/driver.h"

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"question":"q","choices":{"text":["a","b"],"label":["A","B"]},"answerKey":"B"})",
      R"({"question":{"stem":"q","choices":[{"text":"a","label":"1"},{"text":"b","label":"2"}]},"answerKey":"1"})",
      R"({"activity_label":"F","ctx_a":"[header] a","ctx_b":"b","endings":["[step] x","y"],"label":"1"})",
      R"({"goal":"g","sol1":"a ","sol2":" b","label":0})",
      R"({"sentence":"a _ b","option1":"x","option2":"y","answer":"2"})",
      R"([{"context":"c","question":"q","answerA":"a","answerB":"b","answerC":"c","label":"3"},{"text":"one two"}])"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto fill_forms = [](ddl::Json& row, ddl::Index) {
    for (const ddl::Task& task : ddl::builtin_tasks())
      for (const ddl::TaskForm& form : task.forms) {
        if (!form.fits(row)) continue;
        ddl::TaskDocument document;
        try {
          document = form.fill(row);
        } catch (const ddl::UserError&) {
          continue;
        }
        const ddl::Question question = ddl::make_question(task, document, ddl::example_text(task, document));
        if (document.gold < 0 || document.gold >= question.count()) std::abort();
      }
  };
  try {
    ddl::parse_json_rows(text, fill_forms);
  } catch (const ddl::UserError&) {
  }
  return 0;
}
