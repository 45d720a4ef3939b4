#include "eval/samples.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "core/error.h"
#include "core/index.h"
#include "io/file.h"

namespace ddl {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 30;

}  // namespace

SampleFile::SampleFile(std::string path, Identity identity)
    : path_(std::move(path)), identity_(std::move(identity)) {
  lock();
  try {
    if (lock_ >= 0) read_earlier();
    writer_ = std::make_unique<RecordWriter>(path_);
  } catch (...) {
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
}

SampleFile::~SampleFile() {
  if (lock_ >= 0) ::close(lock_);
}

// Two evaluations would each score everything and write it twice. A pipe or a device holds nothing to continue from.
void SampleFile::lock() {
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return;
  lock_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw UserError("{}: cannot be opened for writing ({})", path_, std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    throw UserError("{}: another evaluation is writing it; wait for it, or give another --samples file",
                    path_);
  }
}

void SampleFile::read_earlier() {
  const std::string text = read_file(path_, kMaxBytes);
  const std::size_t whole = text.rfind('\n') + 1;  // 0 where there is no whole line
  Index line = 0;
  for (std::size_t begin = 0; begin < whole;) {
    const std::size_t end = text.find('\n', begin);
    ++line;
    const Json record = parse_json(std::string_view(text).substr(begin, end - begin));
    try {
      keep(record, line);
    } catch (const Json::exception&) {
      throw UserError("{}:{}: not a line of a --samples file; give another name, or remove it", path_, line);
    }
    begin = end + 1;
  }
  if (whole < text.size() && ::ftruncate(lock_, static_cast<off_t>(whole)) != 0)
    throw UserError("{}: cannot be written ({})", path_, std::strerror(errno));
}

void SampleFile::keep(const Json& record, Index line) {
  const auto other = [&](const std::string& what) {
    return UserError("{}:{}: scored {}; give another --samples file, or remove this one", path_, line, what);
  };
  if (record.at("event").get<std::string>() != "sample")
    throw other("nothing: not a line of a --samples file");
  const auto task = record.at("task").get<std::string>();
  const auto found = identity_.tasks.find(task);
  if (record.at("model").get<std::string>() != identity_.model) throw other("with another model");
  if (found == identity_.tasks.end())
    throw other(fmt::format("for the task {}, which is not asked for", task));
  if (record.at("version").get<double>() != found->second)
    throw other(fmt::format("with version {} of the task {}", record.at("version").get<double>(), task));
  if (record.at("shots").get<Index>() != identity_.shots)
    throw other(fmt::format("with {} shots, not {}", record.at("shots").get<Index>(), identity_.shots));
  Kept kept{record.at("question").get<std::string>(), {}, line};
  for (const Json& score : record.at("resps")) {
    if (score.at(0).is_null()) return;  // no finite number came out: score it again
    kept.scores.push_back({score.at(0).get<double>(), score.at(1).get<bool>()});
  }
  kept_[{task, record.at("doc_id").get<Index>()}] = std::move(kept);
}

const std::vector<Score>* SampleFile::find(const std::string& task, Index document,
                                           const Question& question) const {
  const auto found = kept_.find({task, document});
  if (found == kept_.end()) return nullptr;
  const Kept& kept = found->second;
  if (kept.question_hash != question.hash() || std::ssize(kept.scores) != question.count())
    throw UserError(
        "{}:{}: document {} of {} was another when it was scored: the data has changed; give another "
        "--samples file, or remove this one",
        path_, kept.line, document, task);
  return &kept.scores;
}

void SampleFile::write(const std::string& task, Index document, const Question& question,
                       const std::vector<Score>& scores,
                       const std::vector<std::pair<std::string, double>>& values) {
  Json record = make_record("sample");
  record["task"] = task;
  record["version"] = identity_.tasks.at(task);
  record["shots"] = identity_.shots;
  record["model"] = identity_.model;
  record["doc_id"] = document;
  record["question"] = question.hash();
  record["target"] = question.gold;
  for (Index i = 0; i < question.count(); ++i)
    record["arguments"].push_back({question.context(i), question.continuation(i)});
  for (const Score& score : scores) record["resps"].push_back({score.log_likelihood, score.greedy});
  for (const auto& [name, value] : values) record[name] = value;
  writer_->write(record);
}

}  // namespace ddl
