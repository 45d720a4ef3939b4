#include "study/studies_document.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/shell_word.h"
#include "study/answer_blocks.h"
#include "study/study_document.h"
#include "study/study_run.h"

namespace ddl {
namespace {

struct ReadStudy {
  std::string name;  // of its folder
  StudyFolder folder;
  Study study;
  Records records;
  std::vector<std::string> problems;
  std::vector<Answer> answers;
};

// One picture for each unit and margin: rows of different ones cannot be compared.
void add_differences(ReportDocument& document, const std::vector<ReadStudy>& studies) {
  document.section("differences", "All differences");
  std::vector<ForestBlock> pictures;
  for (const ReadStudy& each : studies) {
    const std::string unit = unit_of(each.study);
    auto picture = std::find_if(pictures.begin(), pictures.end(), [&](const ForestBlock& other) {
      return other.unit == unit && other.margin == each.study.margin;
    });
    if (picture == pictures.end()) {
      ForestBlock block;
      block.title = fmt::format("Paired differences in {}, margin {:g}", unit, each.study.margin);
      block.note =
          "Negative: the first arm is better. Each point is a seed; the interval holds over all looks of its "
          "study.";
      block.unit = unit;
      block.margin = each.study.margin;
      picture = pictures.insert(pictures.end(), block);
    }
    for (const Answer& answer : each.answers) {
      if (answer.differences.empty()) continue;
      ForestBlock::Row row = forest_row(answer);
      row.name = fmt::format("{}, {}: {}", each.name, answer.size, row.name);
      picture->rows.push_back(std::move(row));
    }
  }
  for (const ForestBlock& picture : pictures)
    if (!picture.rows.empty()) document.add(picture);
}

}  // namespace

ReportDocument read_studies_document(const std::vector<std::string>& folders) {
  std::vector<ReadStudy> studies;
  std::size_t trials = 0;
  for (const std::string& path : folders) {
    const StudyFolder folder{path};
    ReadStudy each{.name = std::filesystem::weakly_canonical(path).filename().string(),
                   .folder = folder,
                   .study = read_study(folder.study()),
                   .records = {},
                   .problems = {},
                   .answers = {}};
    each.records = read_records(folder, each.study, each.problems);
    each.answers = answer_questions(each.study, each.records);
    trials += each.records.all().size();
    studies.push_back(std::move(each));
  }
  ReportDocument document(fmt::format("{} studies", studies.size()), fmt::format("{} trials", trials));
  add_differences(document, studies);
  std::string commands;
  for (std::size_t i = 0; i < studies.size(); ++i) {
    const ReadStudy& each = studies[i];
    document.section(fmt::format("study-{}", i + 1), fmt::format("{}: {}", each.name, each.study.title));
    add_answers(document, each.study, each.records, each.answers);
    document.add(ListBlock{{fmt::format("study file: SHA-256 {}", each.study.hash),
                            fmt::format("{} trials", each.records.all().size())}});
    if (!each.problems.empty()) document.add(ListBlock{each.problems, true});
    commands += fmt::format("./ddl report {}\n", shell_word(each.folder.path));
  }
  document.section("more", "The report of each study");
  document.add(CodeBlock{commands});
  add_limits(document);
  return document;
}

}  // namespace ddl
