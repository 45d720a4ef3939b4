#include "data/generated_corpus.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "core/record.h"
#include "io/file.h"

namespace ddl {

void write_generated(const std::string& path, Index documents, const Exec& ex,
                     FunctionRef<GeneratedDocument(Index)> make) {
  constexpr Index kBatch = 4096;
  std::optional<AtomicFile> file;
  if (path != "-") file.emplace(path);
  std::vector<std::string> lines(kBatch);
  for (Index begin = 0; begin < documents; begin += kBatch) {
    const Index count = std::min(kBatch, documents - begin);
    parallel_for(count, ex, [&](Index i) {
      const GeneratedDocument document = make(begin + i);
      Json answers = Json::array();
      for (const ByteSpan& span : document.answers) answers.push_back(Json::array({span.begin, span.end}));
      lines[i] = to_line(Json{{"text", document.text}, {"answers", answers}}) + "\n";
    });
    for (Index i = 0; i < count; ++i) {
      if (file)
        file->write(lines[i]);
      else if (std::fwrite(lines[i].data(), 1, lines[i].size(), stdout) != lines[i].size())
        throw UserError("standard output cannot be written");
    }
  }
  if (file) file->commit();
  if (!file && std::fflush(stdout) != 0) throw UserError("standard output cannot be written");
}

}  // namespace ddl
