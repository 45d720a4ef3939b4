#include "train/identity.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "data/tokenizer.h"
#include "io/sha256.h"

namespace ddl {
namespace {

// Whether it would be another run with this change.
bool is_fixed(const OptionChange& change) {
  const std::string& key = change.key;
  if (key.starts_with("model.")) return change.changes != Options::Changes::kComputing;
  static const std::vector<std::string> kFixed = {"preset",        "train.batch", "train.accumulate",
                                                  "train.context", "train.seed",  "train.optimizer",
                                                  "data.order"};
  return std::find(kFixed.begin(), kFixed.end(), key) != kFixed.end();
}

}  // namespace

Json run_identity(const Dataset& data) {
  Json json{{"format", "ddl-run"}, {"version", 1}};
  json["data"] = Json{{"folder", data.folder()},
                      {"form", data.form()},
                      {"fingerprint", data.fingerprint()},
                      {"train_tokens", data.train().tokens()},
                      {"val_tokens", data.val().tokens()}};
  json["tokenizer_sha256"] =
      data.tokenizer_path().empty() ? Json(nullptr) : Json(sha256_file(data.tokenizer_path()));
  return json;
}

void check_identity(const Json& began_with, const Json& now, const std::string& run) {
  std::string differences;
  const auto compare = [&](const std::string& what, const Json& before, const Json& after) {
    if (before != after)
      differences +=
          fmt::format("\n  {}: {} when the run began, {} now", what, to_line(before), to_line(after));
  };
  const Json none;
  const auto part = [&](const Json& json, const char* key) -> const Json& {
    return json.contains(key) ? json[key] : none;
  };
  compare("tokenizer, SHA-256", part(began_with, "tokenizer_sha256"), part(now, "tokenizer_sha256"));
  for (const char* key : {"form", "train_tokens", "val_tokens", "fingerprint"})
    compare(fmt::format("data, {}", key), part(part(began_with, "data"), key), part(part(now, "data"), key));
  if (!differences.empty())
    throw UserError(
        "{}: the data is not what this run began with:{}\nUse the old data, or another --out for a new run.",
        run, differences);
}

std::vector<OptionChange> allowed_changes(const RunConfig& before, const RunConfig& after) {
  RunConfig a = before, b = after;
  std::vector<OptionChange> changes;
  std::string refused;
  for (const OptionChange& change : option_changes(a.options(), b.options())) {
    if (is_fixed(change))
      refused += fmt::format("\n  {}: {} in the run, {} asked for", change.key, change.before, change.after);
    else
      changes.push_back(change);
  }
  if (!refused.empty())
    throw UserError(
        "a resumed run cannot change its model, its optimizer or the order of its data:{}\n"
        "Leave these as they were, or use another --out for a new run.",
        refused);
  return changes;
}

void check_same_tokens(const StoredModel& model, const Dataset& data) {
  const std::string& model_folder = model.folder();
  if (data.tokenizer_path().empty() || !std::filesystem::exists(model_folder + "/tokenizer.json")) {
    if (data.vocab_size() > model.config().vocab)
      throw UserError(
          "{}: a model of {} tokens, but {} has a vocabulary of {}; prepare the data with the model's "
          "tokenizer",
          model_folder, model.config().vocab, data.folder(), data.vocab_size());
    return;
  }
  const auto own = load_tokenizer(model_folder), dataset = load_tokenizer(data.tokenizer_path());
  const auto text_of = [](const Tokenizer& t, Index id) { return t.decode({{static_cast<TokenId>(id)}}); };
  bool same = own->name() == dataset->name() && own->end_of_text() == dataset->end_of_text();
  for (Index id = 0; same && id < own->vocab_size(); ++id) same = text_of(*own, id) == text_of(*dataset, id);
  if (!same)
    throw UserError(
        "{}: its tokenizer ({}) is not the data's ({}, {}); prepare the data with it: ddl data prepare "
        "--tokenizer {}",
        model_folder, own->name(), data.folder(), dataset->name(), model_folder);
}

}  // namespace ddl
