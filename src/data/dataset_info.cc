#include "data/dataset_info.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/json_fields.h"
#include "data/tokenizer.h"

namespace ddl {
namespace {

constexpr Index kExcerptTokens = 64;
constexpr Index kTokensAtOnce = Index{1} << 18;

Json describe_split(const TokenStream& stream, std::optional<TokenId> end_of_text, const Tokenizer* tokenizer,
                    const Exec& ex) {
  // Each chunk counts for itself; sums do not depend on the order.
  const Index chunks = ceil_div(stream.tokens(), kTokensAtOnce);
  struct Part {
    Index documents = 0, answers = 0;
    std::vector<bool> seen;
  };
  std::vector<Part> parts(static_cast<std::size_t>(chunks));
  parallel_chunks(stream.tokens(), kTokensAtOnce, ex, [&](Index begin, Index end) {
    Part& part = parts[begin / kTokensAtOnce];
    std::vector<TokenId> tokens(static_cast<std::size_t>(end - begin));
    stream.read(begin, end - begin, tokens.data());
    for (const TokenId token : tokens) {
      if (token >= part.seen.size()) part.seen.resize(token + 1);
      part.seen[token] = true;
    }
    if (end_of_text) part.documents = std::count(tokens.begin(), tokens.end(), *end_of_text);
    if (!stream.has_answers()) return;
    std::vector<std::uint8_t> answers(tokens.size());
    stream.read_answers(begin, end - begin, answers.data());
    part.answers = std::count(answers.begin(), answers.end(), std::uint8_t{1});
  });
  Index documents = 0, answers = 0;
  std::vector<bool> seen;
  for (const Part& part : parts) {
    documents += part.documents;
    answers += part.answers;
    if (part.seen.size() > seen.size()) seen.resize(part.seen.size());
    for (std::size_t i = 0; i < part.seen.size(); ++i)
      if (part.seen[i]) seen[i] = true;
  }
  Json json{{"tokens", stream.tokens()}, {"shards", stream.shards().size()}};
  if (end_of_text) json["documents"] = documents;
  if (stream.has_answers()) json["answers"] = answers;
  json["vocabulary_seen"] = std::count(seen.begin(), seen.end(), true);
  json["largest_token"] = static_cast<Index>(seen.size()) - 1;
  const Index shown = std::min(kExcerptTokens, stream.tokens());
  std::vector<TokenId> excerpt(static_cast<std::size_t>(shown));
  stream.read(0, shown, excerpt.data());
  if (tokenizer) {
    std::erase(excerpt, tokenizer->end_of_text());
    json["excerpt"] = tokenizer->decode(excerpt);
  } else {
    json["excerpt_ids"] = excerpt;
  }
  return json;
}

}  // namespace

Json describe_dataset(const Dataset& dataset, const Tokenizer* tokenizer, const Exec& ex) {
  Json json = make_record("dataset");
  json["folder"] = dataset.folder();
  json["form"] = dataset.form();
  if (!dataset.manifest().is_null())
    json["tokenizer"] = JsonFields(dataset.manifest(), dataset.folder() + "/dataset.json").text("tokenizer");
  if (dataset.vocab_size() > 0) json["vocab_size"] = dataset.vocab_size();
  // Bare shards do not say what begins a document; their tokenizer does.
  std::optional<TokenId> end_of_text = dataset.end_of_text();
  if (dataset.manifest().is_null() && tokenizer) end_of_text = tokenizer->end_of_text();
  if (end_of_text) json["end_of_text"] = *end_of_text;
  json["fingerprint"] = dataset.fingerprint();
  json["train"] = describe_split(dataset.train(), end_of_text, tokenizer, ex);
  if (dataset.val().tokens() > 0) json["val"] = describe_split(dataset.val(), end_of_text, tokenizer, ex);
  return json;
}

std::string dataset_screen(const Json& d) {
  const auto text = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : to_line(value);
  };
  std::string screen;
  for (const char* key : {"folder", "form", "tokenizer", "vocab_size", "end_of_text", "fingerprint"})
    if (d.contains(key)) screen += fmt::format("{:<16}{}\n", key, text(d[key]));
  for (const char* split : {"train", "val"}) {
    if (!d.contains(split)) continue;
    const Json& s = d[split];
    screen += fmt::format("\n{:<16}{} tokens in {} shard{}", split, s["tokens"].get<Index>(),
                          text(s["shards"]), s["shards"] == 1 ? "" : "s");
    if (s.contains("documents"))
      screen += fmt::format(", {} document{}", text(s["documents"]), s["documents"] == 1 ? "" : "s");
    if (s.contains("answers")) screen += fmt::format(", {} answers", text(s["answers"]));
    screen += fmt::format(", {} different tokens (largest {})\n", text(s["vocabulary_seen"]),
                          text(s["largest_token"]));
    screen += s.contains("excerpt")
                  ? fmt::format("  \"{}\" ...\n", text(s["excerpt"]))
                  : fmt::format("  {} ... (no tokenizer.json in the folder)\n", text(s["excerpt_ids"]));
  }
  return screen;
}

}  // namespace ddl
