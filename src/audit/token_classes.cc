#include "audit/token_classes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"

namespace ddl {
namespace {

using Groups = std::vector<std::uint8_t>;

// 0, 1 or 2: which third of the text a token's occurrence is in, where all tokens of the text are put in the order
// of their counts. All occurrences of a token are in one group, that of the middle one.
Groups frequency(const std::vector<std::int32_t>& token_N) {
  std::map<std::int32_t, Index> counts;
  for (const std::int32_t token : token_N) ++counts[token];
  std::vector<std::pair<Index, std::int32_t>> by_count;
  for (const auto& [token, count] : counts) by_count.emplace_back(count, token);
  std::sort(by_count.begin(), by_count.end());
  std::map<std::int32_t, std::uint8_t> group;
  Index before = 0;
  for (const auto& [count, token] : by_count) {
    group[token] = static_cast<std::uint8_t>(3 * (before + count / 2) / std::ssize(token_N));
    before += count;
  }
  Groups of;
  for (const std::int32_t token : token_N) of.push_back(group[token]);
  return of;
}

Groups loss_thirds(const std::vector<float>& loss_N) {
  std::vector<Index> order(loss_N.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return loss_N[a] < loss_N[b]; });
  Groups of(loss_N.size());
  for (Index rank = 0; rank < std::ssize(order); ++rank)
    of[order[rank]] = static_cast<std::uint8_t>(3 * rank / std::ssize(order));
  return of;
}

Groups repeated(const std::vector<std::int32_t>& token_N, Index context) {
  Groups of;
  std::set<std::int32_t> seen;
  for (Index n = 0; n < std::ssize(token_N); ++n) {
    if (n % context == 0) seen.clear();
    of.push_back(seen.insert(token_N[n]).second ? 0 : 1);
  }
  return of;
}

// Bytes above 127 are parts of letters, nearly always.
bool in_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte >= 128;
}

Groups words(const std::vector<std::int32_t>& token_N, Index context, const Tokenizer& tokenizer) {
  std::map<std::int32_t, std::string> texts;
  Groups of;
  bool after_word = false;  // the token before ends in a letter or a digit
  for (Index n = 0; n < std::ssize(token_N); ++n) {
    const auto [found, is_new] = texts.try_emplace(token_N[n]);
    if (is_new) found->second = tokenizer.decode({{static_cast<TokenId>(token_N[n])}});
    const std::string& text = found->second;
    if (n % context == 0) after_word = false;
    const bool has_word = std::any_of(text.begin(), text.end(), in_word);
    of.push_back(!has_word ? 2 : after_word && in_word(text.front()) ? 1 : 0);
    after_word = !text.empty() && in_word(text.back());
  }
  return of;
}

}  // namespace

std::vector<TokenClass> token_classes(const std::vector<std::int32_t>& token_N, Index context,
                                      const std::vector<float>& loss_N, const Tokenizer* tokenizer) {
  DDL_CHECK(token_N.size() == loss_N.size() && !token_N.empty(), "{} tokens, {} losses", token_N.size(),
            loss_N.size());
  std::vector<TokenClass> classes;
  classes.push_back({"frequency", {"rare", "middle", "frequent"}, frequency(token_N)});

  const Index first = std::min<Index>(16, context / 4), half = context / 2;
  TokenClass position{
      "position", {fmt::format("first {}", first), fmt::format("to {}", half), "second half"}, {}};
  for (Index n = 0; n < std::ssize(token_N); ++n) {
    const Index t = n % context;
    position.group_N.push_back(t < first ? 0 : t < half ? 1 : 2);
  }
  classes.push_back(std::move(position));
  if (tokenizer)
    classes.push_back({"word", {"start", "inside", "other"}, words(token_N, context, *tokenizer)});
  classes.push_back({"repeated", {"new", "repeated"}, repeated(token_N, context)});
  classes.push_back({"loss", {"low", "middle", "high"}, loss_thirds(loss_N)});
  return classes;
}

}  // namespace ddl
