#include "audit/audit_text.h"

#include <algorithm>

#include "core/error.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "train/identity.h"

namespace ddl {
namespace {

// How many windows `tokens` asks for.
Index wanted_windows(Index tokens, Index context) {
  if (tokens < context)
    throw UserError("--tokens {}: expected {} at least, one window of the model's context", tokens, context);
  return tokens / context;
}

[[noreturn]] void throw_too_short(const std::string& source, const char* what, Index found, Index context) {
  throw UserError(
      "{}: {} {} tokens; an audit needs {} at least, one window of the model's context and its successor",
      source, what, found, context + 1);
}

}  // namespace

AuditText text_of_dataset(const std::string& folder, const StoredModel& model, Index tokens, const Exec& ex) {
  const Index context = model.config().context, windows = wanted_windows(tokens, context);
  const Dataset data = Dataset::open(folder, ex);
  check_same_tokens(model, data);
  data.check_vocab(model.config().vocab, ex);
  if (data.val().tokens() <= context)
    throw_too_short(folder, "its validation split has", data.val().tokens(), context);
  const FixedWindows chosen(data.val(), data.end_of_text(), context, windows);
  Batch batch;
  chosen.load(0, chosen.count(), batch);
  return {folder, "validation split", context, batch.inputs_BT, batch.targets_BT};
}

AuditText text_of_files(const std::string& path, const StoredModel& model, const Tokenizer& tokenizer,
                        Index tokens) {
  const Index context = model.config().context, windows = wanted_windows(tokens, context);
  CorpusReader reader({path}, {});
  std::vector<TokenId> ids;
  for (Document piece; std::ssize(ids) <= windows * context && reader.next(piece);) {
    if (piece.piece == 0) ids.push_back(tokenizer.end_of_text());
    tokenizer.encode(piece.text, ids);
  }
  if (std::ssize(ids) <= context) throw_too_short(path, "has", std::ssize(ids), context);
  const Index count = std::min(windows, (std::ssize(ids) - 1) / context) * context;
  return {
      path, "text", context, {ids.begin(), ids.begin() + count}, {ids.begin() + 1, ids.begin() + 1 + count}};
}

}  // namespace ddl
