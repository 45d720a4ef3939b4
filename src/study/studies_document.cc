#include "study/studies_document.h"

#include <algorithm>
#include <utility>

#include "study/answer_blocks.h"
#include "study/study_run.h"

namespace ddl {
namespace {

struct ReadStudy {
  StudyFolder folder;
  Study study;
  Records records;
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
      block.title = fmt::format("Paired differences in {}", unit);
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
      row.name = fmt::format("{}: {}", answer.size, row.name);
      picture->rows.push_back(std::move(row));
    }
  }
  for (const ForestBlock& picture : pictures)
    if (!picture.rows.empty()) document.add(picture);
}

}  // namespace

ReportDocument read_studies_document(const std::vector<std::string>& folders) {
  std::vector<ReadStudy> studies;
  std::vector<std::string> problems;
  std::size_t trials = 0;
  for (const std::string& path : folders) {
    ReadStudy each{StudyFolder{path}, read_study(StudyFolder{path}.study()), {}, {}};
    each.records = Records::read(each.folder.records(), each.study, &problems);
    each.answers = answer_questions(each.study, each.records);
    trials += each.records.all().size();
    studies.push_back(std::move(each));
  }
  ReportDocument document(fmt::format("{} studies", studies.size()), fmt::format("{} trials", trials));
  add_differences(document, studies);
  std::string commands;
  for (std::size_t i = 0; i < studies.size(); ++i) {
    const ReadStudy& each = studies[i];
    document.section(fmt::format("study-{}", i + 1), each.study.title);
    add_answers(document, each.study, each.records, each.answers);
    document.add(ListBlock{{fmt::format("folder: {}", each.folder.path),
                            fmt::format("study file: SHA-256 {}", each.study.hash),
                            fmt::format("{} trials", each.records.all().size())}});
    commands += fmt::format("./ddl report {0}\n", each.folder.path);
  }
  document.section("more", "The report of each study");
  document.add(CodeBlock{commands});
  if (!problems.empty()) document.add(ListBlock{problems, true});
  add_limits(document);
  return document;
}

}  // namespace ddl
