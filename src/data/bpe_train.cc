#include "data/bpe_train.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "data/bpe_parse.h"
#include "data/tokenizer.h"

namespace ddl {
namespace {

constexpr std::uint32_t kEnd = 0xffffffffu;
constexpr TokenId kDead = 0xffffffffu;  // the right half of a pair that was merged

// All distinct words, symbol by symbol. A word is a linked list, so that a merge takes constant time.
struct Symbol {
  TokenId id;
  std::uint32_t previous, next, word;
};

struct Pair {
  TokenId left, right;
  std::uint64_t count = 0;           // over the whole text
  std::vector<std::uint32_t> where;  // positions of its left half, and some where it no longer is
};

struct Candidate {
  std::uint64_t count;
  TokenId left, right;
  std::uint32_t pair;
  bool operator<(const Candidate& other) const {  // "is worse than"
    if (count != other.count) return count < other.count;
    return left != other.left ? left > other.left : right > other.right;
  }
};

class Trainer {
 public:
  explicit Trainer(const std::vector<std::pair<std::string_view, std::uint64_t>>& words) {
    for (const auto& [text, count] : words) add_word(text, count);
    for (std::uint32_t at = 0; at < symbols_.size(); ++at)
      if (symbols_[at].next != kEnd) add_pair(symbols_[at].id, symbols_[symbols_[at].next].id, at);
    for (std::uint32_t pair = 0; pair < pairs_.size(); ++pair) push(pair);
    touched_.clear();
  }

  // The most frequent pair, or nullptr where none occurs twice. Counts in the heap may be out of date: those
  // that grew were pushed again with the new count, those that shrank are pushed again when they come up.
  Pair* best() {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      Pair& pair = pairs_[top.pair];
      if (pair.count == top.count) return pair.count >= 2 ? &pair : nullptr;
      heap_.pop();
      if (pair.count < top.count) push(top.pair);
    }
    return nullptr;
  }

  void merge(Pair& merged, TokenId result) {
    const TokenId left = merged.left, right = merged.right;
    std::vector<std::uint32_t> where = std::move(merged.where);
    merged.where.clear();
    const auto merged_index = static_cast<std::uint32_t>(&merged - pairs_.data());
    // From left to right, as in encoding: "aaa" is (aa)a. They are in order because a pair gets all its
    // positions in the one step that makes the younger of its halves.
    DDL_DCHECK(std::is_sorted(where.begin(), where.end()), "{} positions", where.size());
    for (const std::uint32_t at : where) {
      Symbol& a = symbols_[at];
      if (a.id != left || a.next == kEnd || symbols_[a.next].id != right) continue;
      Symbol& b = symbols_[a.next];
      if (a.previous != kEnd) remove_pair(symbols_[a.previous].id, left, a.word);
      if (b.next != kEnd) remove_pair(right, symbols_[b.next].id, a.word);
      a.id = result;
      a.next = b.next;
      b.id = kDead;
      if (a.next != kEnd) symbols_[a.next].previous = at;
      if (a.previous != kEnd) add_pair(symbols_[a.previous].id, result, a.previous);
      if (a.next != kEnd) add_pair(result, symbols_[a.next].id, at);
    }
    pairs_[merged_index].count = 0;
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const std::uint32_t pair : touched_) push(pair);
    touched_.clear();
  }

 private:
  void add_word(std::string_view text, std::uint64_t count) {
    if (symbols_.size() + text.size() >= kEnd)
      throw UserError(
          "expected less than 4 GB of different words to train a tokenizer on, found more; give less text");
    const auto begin = static_cast<std::uint32_t>(symbols_.size());
    const auto end = begin + static_cast<std::uint32_t>(text.size());
    for (std::uint32_t at = begin; at < end; ++at)
      symbols_.push_back({static_cast<unsigned char>(text[at - begin]), at == begin ? kEnd : at - 1,
                          at + 1 == end ? kEnd : at + 1, static_cast<std::uint32_t>(word_counts_.size())});
    word_counts_.push_back(count);
  }

  std::uint32_t index_of(TokenId left, TokenId right) {
    const auto [found, is_new] =
        index_.try_emplace(std::uint64_t{left} << 32 | right, static_cast<std::uint32_t>(pairs_.size()));
    if (is_new) pairs_.push_back({left, right, 0, {}});
    return found->second;
  }

  void add_pair(TokenId left, TokenId right, std::uint32_t at) {
    const std::uint32_t index = index_of(left, right);
    pairs_[index].count += word_counts_[symbols_[at].word];
    pairs_[index].where.push_back(at);
    touched_.push_back(index);
  }

  void remove_pair(TokenId left, TokenId right, std::uint32_t word) {
    pairs_[index_of(left, right)].count -= word_counts_[word];
  }

  void push(std::uint32_t pair) {
    const Pair& p = pairs_[pair];
    if (p.count >= 2) heap_.push({p.count, p.left, p.right, pair});
  }

  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> word_counts_;
  std::vector<Pair> pairs_;
  std::unordered_map<std::uint64_t, std::uint32_t> index_;  // left << 32 | right -> pairs_
  std::priority_queue<Candidate> heap_;
  std::vector<std::uint32_t> touched_;  // pairs that gained during this merge
};

}  // namespace

BpeVocabulary train_bpe(WordCounter& words, Index vocab_size, FunctionRef<void(Index, Index)> progress) {
  constexpr Index kSmallest = Index{kByteVocabularyEnd} + 1;  // the bytes and end of text
  if (vocab_size < kSmallest || vocab_size > static_cast<Index>(kMaxIds))
    throw UserError("expected a vocabulary size from {} to {}, found {}", kSmallest, kMaxIds, vocab_size);
  BpeVocabulary result = byte_vocabulary();
  result.tokens.pop_back();  // end of text comes last

  Trainer trainer(words.words());
  while (static_cast<Index>(result.tokens.size()) < vocab_size - 1) {
    Pair* const pair = trainer.best();
    if (!pair) break;
    // No other pair makes the same bytes, before or after. A stretch of a word that no merge crosses at its
    // two ends was never crossed there before, so it was merged as if it were a word of its own. Wherever the
    // same bytes stand between such ends, they are in the same pieces. So this merge reaches all of them, and
    // no earlier token has these bytes.
    const auto id = static_cast<TokenId>(result.tokens.size());
    result.tokens.push_back(result.tokens[pair->left] + result.tokens[pair->right]);
    result.merges.push_back({pair->left, pair->right, id});
    trainer.merge(*pair, id);
    if (result.merges.size() % 64 == 0) progress(static_cast<Index>(result.tokens.size()), vocab_size);
  }
  result.end_of_text = static_cast<TokenId>(result.tokens.size());
  result.specials = {result.end_of_text};
  result.tokens.emplace_back(kEndOfText);
  progress(static_cast<Index>(result.tokens.size()), vocab_size);
  return result;
}

BpeVocabulary train_bpe(WordCounter& words, Index vocab_size) {
  return train_bpe(words, vocab_size, [](Index, Index) {});
}

}  // namespace ddl
