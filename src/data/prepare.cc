#include "data/prepare.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>

#include "core/error.h"
#include "data/answer_marks.h"
#include "data/dataset.h"
#include "data/document_shuffler.h"
#include "data/partial_folder.h"
#include "data/progress_line.h"
#include "data/split_writer.h"
#include "io/file.h"

namespace ddl {
namespace {

constexpr std::size_t kBatchBytes = std::size_t{16} << 20;  // text tokenised at once: keeps all cores busy
constexpr std::size_t kBatchDocuments = 65536;

struct Source {
  Index documents = 0, blank = 0, bad_rows = 0;
  Json inputs = Json::array();
  std::vector<std::string> bad_examples;
};

struct Encoded {
  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> answers;
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const Tokenizer& tokenizer, const Exec& ex)
      : options_(options),
        tokenizer_(tokenizer),
        ex_(ex),
        token_bytes_(token_bytes_for(tokenizer.vocab_size())) {}

  Json run() {
    PartialFolder folder(options_.out, [&](const std::string& target) { check_replaceable(target); });
    Json manifest = describe();
    {
      DocumentShuffler shuffler(folder.path() + "/shuffle", token_bytes_, options_.seed);
      const Source train = tokenize(options_.inputs, "prepare", shuffler);
      if (shuffler.tokens() == 0) throw UserError("{}: no text in the inputs", options_.inputs.front());
      Source val;
      std::optional<DocumentShuffler> val_shuffler;
      if (!options_.val_inputs.empty()) {
        val_shuffler.emplace(folder.path() + "/shuffle_val", token_bytes_, options_.seed);
        val = tokenize(options_.val_inputs, "prepare validation", *val_shuffler);
        if (val_shuffler->tokens() == 0) throw UserError("{}: no text in it", options_.val_inputs.front());
      }
      const bool answers = shuffler.has_answers() || (val_shuffler && val_shuffler->has_answers());
      SplitWriter train_out(folder.path(), name(), "train", token_bytes_, options_.shard_tokens, answers);
      SplitWriter val_out(folder.path(), name(), "val", token_bytes_, options_.shard_tokens, answers);
      write_splits(shuffler, val_shuffler ? 0.0 : options_.val_fraction, train_out, val_out);
      if (val_shuffler)
        val_shuffler->for_each([&](const ShuffledDocument& document) { write_whole(document, val_out); });
      train_out.finish();
      val_out.finish();

      manifest["tokens"] = train_out.tokens() + val_out.tokens();
      manifest["documents"] = train.documents + val.documents;
      manifest["blank_documents_left_out"] = train.blank + val.blank;
      manifest["bad_rows_left_out"] = train.bad_rows + val.bad_rows;
      if (!train.bad_examples.empty()) manifest["bad_rows_first"] = train.bad_examples;
      if (!val.bad_examples.empty()) manifest["bad_rows_first_val"] = val.bad_examples;
      manifest["train"] = train_out.manifest(ex_);
      manifest["val"] = val_out.manifest(ex_);
      manifest["inputs"] = train.inputs;
      if (val_shuffler) manifest["val_inputs"] = val.inputs;
    }
    tokenizer_.save(folder.path());
    write_file_atomic(folder.path() + "/dataset.json", to_text(manifest));
    folder.commit();
    return manifest;
  }

 private:
  // Only a folder that is a dataset and holds nothing else may be replaced.
  void check_replaceable(const std::string& folder) const {
    if (!std::filesystem::exists(folder + "/dataset.json"))
      throw UserError("{}: exists and holds other things; choose another folder", folder);
    if (!options_.force) throw UserError("{}: a dataset is there already; --force replaces it", folder);
    if (const std::string other = first_foreign_entry(folder); !other.empty())
      throw UserError(
          "{}: does not belong to the dataset next to it, which --force would remove with all that is there; "
          "move it away, or choose another folder",
          other);
  }

  // The name of the shards' files: plain characters, and nothing that reads as the name of a split.
  std::string name() const {
    std::filesystem::path out(options_.out);
    if (!out.has_filename()) out = out.parent_path();
    std::string text = options_.name.empty()
                           ? std::filesystem::absolute(out).lexically_normal().filename().string()
                           : options_.name;
    for (char& c : text)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '-';
    return text.empty() ? "data" : text;
  }

  Json describe() const {
    return Json{{"format", "ddl-dataset"},
                {"version", 1},
                {"name", name()},
                {"tokenizer", tokenizer_.name()},
                {"vocab_size", tokenizer_.vocab_size()},
                {"end_of_text", tokenizer_.end_of_text()},
                {"token_bytes", token_bytes_},
                {"options",
                 {{"seed", options_.seed},
                  {"val_fraction", options_.val_inputs.empty() ? options_.val_fraction : 0.0},
                  {"shard_tokens", options_.shard_tokens},
                  {"field", options_.corpus.field},
                  {"separator", options_.corpus.separator},
                  {"format", options_.corpus.format},
                  {"skip_bad", options_.corpus.skip_bad}}}};
  }

  // All documents of the inputs, tokenised, into the shuffler.
  Source tokenize(const std::vector<std::string>& inputs, const std::string& what,
                  DocumentShuffler& shuffler) {
    CorpusReader reader(inputs, options_.corpus);
    ProgressLine progress(what, ProgressLine::Unit::kBytes, reader.bytes_total(), options_.progress);
    for (bool more = true; more;) {
      // New for each batch: buffers that are kept would each grow to the longest document that ever came to
      // their place, gigabytes in the end.
      std::vector<Document> batch;
      for (std::size_t bytes = 0; bytes < kBatchBytes && batch.size() < kBatchDocuments;) {
        Document document;
        more = reader.next(document);
        if (!more) break;
        bytes += document.text.size();
        batch.push_back(std::move(document));
      }
      std::vector<Encoded> encoded(batch.size());
      parallel_for(std::ssize(batch), ex_, [&](Index i) { encode(batch[i], encoded[i]); });
      for (std::size_t i = 0; i < batch.size(); ++i)
        shuffler.add(batch[i].index, batch[i].piece, encoded[i].tokens, encoded[i].answers);
      progress.update(reader.bytes_read(),
                      fmt::format("{:.2f}M tokens", static_cast<double>(shuffler.tokens()) / 1e6));
    }
    Source source{reader.documents(), reader.blank(), reader.bad_rows().count(), Json::array(),
                  reader.bad_rows().first()};
    for (const InputFile& file : reader.inputs())
      source.inputs.push_back(Json{{"path", file.path}, {"bytes", file.bytes}});
    return source;
  }

  void encode(const Document& document, Encoded& out) {
    if (document.piece == 0) out.tokens.push_back(tokenizer_.end_of_text());
    tokenizer_.encode(document.text, out.tokens);
    if (document.answers.empty()) return;
    std::call_once(marker_once_, [&] { marker_.emplace(tokenizer_); });
    std::string buffer;
    const std::string_view text = tokenizer_.normalized(document.text, buffer);
    const bool same = text.data() == document.text.data();
    marker_->mark(std::span(out.tokens).subspan(1),
                  same ? document.answers : answers_in_nfc(document.text, document.answers), text.size(),
                  out.answers);
    out.answers.insert(out.answers.begin(), 0);  // the end of text
  }

  void write_whole(const ShuffledDocument& document, SplitWriter& out) {
    out.count_document();
    for (Index p = 0; p < document.pieces(); ++p) {
      document.read(p, tokens_, answers_);
      out.write(tokens_, answers_);
    }
  }

  // Validation gets the first documents of the shuffled order that together have `fraction` of the tokens.
  // Where documents are so long that this would leave it less than half full, the end of one is cut off for
  // it, so that a single file has a validation split too.
  void write_splits(DocumentShuffler& shuffler, double fraction, SplitWriter& train, SplitWriter& val) {
    const auto budget = static_cast<Index>(std::llround(fraction * static_cast<double>(shuffler.tokens())));
    bool filling = budget > 0;
    shuffler.for_each([&](const ShuffledDocument& document) {
      const Index room = budget - val.tokens();
      if (!filling || document.tokens() <= room) return write_whole(document, filling ? val : train);
      filling = false;
      if (val.tokens() >= budget / 2) return write_whole(document, train);
      cut(document, document.tokens() - room, train, val);
    });
  }

  // Tokens from `at` on go to validation, as a document of their own.
  void cut(const ShuffledDocument& document, Index at, SplitWriter& train, SplitWriter& val) {
    train.count_document();
    val.count_document();
    const TokenId end_of_text = tokenizer_.end_of_text();
    const std::uint8_t ordinary = 0;
    val.write({&end_of_text, 1}, {&ordinary, 1});
    Index position = 0;
    for (Index p = 0; p < document.pieces(); ++p) {
      document.read(p, tokens_, answers_);
      const auto first = static_cast<std::size_t>(std::clamp<Index>(at - position, 0, std::ssize(tokens_)));
      train.write(std::span(tokens_).first(first), std::span(answers_).first(first));
      // Answers about a story whose beginning is elsewhere cannot be known.
      std::fill(answers_.begin(), answers_.end(), std::uint8_t{0});
      val.write(std::span(tokens_).subspan(first), std::span(answers_).subspan(first));
      position += std::ssize(tokens_);
    }
  }

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  const Exec& ex_;
  int token_bytes_;
  std::once_flag marker_once_;
  std::optional<AnswerMarker> marker_;
  std::vector<TokenId> tokens_;
  std::vector<std::uint8_t> answers_;
};

}  // namespace

Json prepare_dataset(const PrepareOptions& options, const Tokenizer& tokenizer, const Exec& ex) {
  if (options.inputs.empty())
    throw UserError("no input given: name files or folders, or - for standard input");
  if (options.out.empty()) throw UserError("--out: expected the folder to write");
  if (!(options.val_fraction >= 0 && options.val_fraction < 1))
    throw UserError("--val-fraction {}: expected a number from 0 to below 1", options.val_fraction);
  if (options.shard_tokens < 1 || options.shard_tokens > kMaxShardTokens)
    throw UserError("--shard-tokens {}: expected a whole number from 1 to {}", options.shard_tokens,
                    kMaxShardTokens);
  return Preparation(options, tokenizer, ex).run();
}

}  // namespace ddl
