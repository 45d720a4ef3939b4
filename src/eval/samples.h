// The file of --samples: one JSON line for every document that was scored, with the scored text, its
// log-likelihoods and its metrics. An interrupted evaluation continues from it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/index.h"
#include "core/record.h"
#include "eval/question.h"
#include "eval/request.h"

namespace ddl {

class SampleFile {
 public:
  // What every line must agree with. `tasks`: those of this evaluation, with their versions.
  struct Identity {
    std::string model;  // a hash
    Index shots = 0;
    std::map<std::string, double> tasks;
  };

  // Reads what an earlier evaluation left; a last line that was cut off is dropped. Throws UserError naming
  // file and line where it is not of this evaluation, and where another process is writing the file.
  SampleFile(std::string path, Identity identity);
  ~SampleFile();
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  // The scores of a document that was scored before, or null. Throws UserError where the question differs.
  const std::vector<Score>* find(const std::string& task, Index document, const Question& question) const;

  void write(const std::string& task, Index document, const Question& question,
             const std::vector<Score>& scores, const std::vector<std::pair<std::string, double>>& values);

 private:
  struct Kept {
    std::string question_hash;
    std::vector<Score> scores;
    Index line = 0;
  };
  void lock();
  void read_earlier();
  void keep(const Json& record, Index line);
  std::string path_;
  Identity identity_;
  int lock_ = -1;  // the file, where it is one that can be locked
  std::map<std::pair<std::string, Index>, Kept> kept_;
  std::unique_ptr<RecordWriter> writer_;
};

}  // namespace ddl
