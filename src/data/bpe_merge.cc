#include "data/bpe_merge.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace ddl {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

std::size_t pair_slot(std::uint64_t pair, std::size_t mask) {
  const auto product = static_cast<unsigned __int128>(pair ^ 0xD6E8FEB86659FD93u) * 0x9E3779B97F4A7C15u;
  return (static_cast<std::size_t>(product) ^ static_cast<std::size_t>(product >> 64)) & mask;
}

// Up to this many symbols a scan for the lowest rank beats a heap; nearly all words are shorter.
constexpr std::size_t kShortSymbols = 48;

// Positions are kept in 32 bits. A single word above 1 GiB (a gigabyte without a change between letters,
// digits, signs and spaces) is encoded in pieces of that size.
constexpr std::size_t kMaxSymbols = std::size_t{1} << 30;

}  // namespace

MergeTable::MergeTable() : slots_(16) {}

const MergeTable::Slot& MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_key(left, right);
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = pair_slot(pair, mask);
  while (slots_[i].pair != pair && slots_[i].pair != kFree) i = (i + 1) & mask;
  return slots_[i];
}

bool MergeTable::insert(const Merge& merge) {
  if (2 * (std::size_t{count_} + 1) > slots_.size()) grow();
  auto& slot = const_cast<Slot&>(find(merge.left, merge.right));
  if (slot.pair != kFree) return false;
  slot = {pair_key(merge.left, merge.right), count_++, merge.result};
  return true;
}

void MergeTable::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.pair == kFree) continue;
    std::size_t i = pair_slot(slot.pair, mask);
    while (slots_[i].pair != kFree) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

void MergeTable::apply(std::vector<TokenId>& ids, std::size_t from) const {
  std::size_t kept = from;
  for (std::size_t begin = from; begin < ids.size();) {
    const std::size_t n = std::min(ids.size() - begin, kMaxSymbols);
    TokenId* const word = ids.data() + begin;
    const std::size_t left = n <= kShortSymbols ? apply_short(word, n) : apply_long(word, n);
    if (kept != begin) std::copy(word, word + left, ids.data() + kept);
    kept += left;
    begin += n;
  }
  ids.resize(kept);
}

std::size_t MergeTable::apply_short(TokenId* ids, std::size_t n) const {
  const Slot* pairs[kShortSymbols];  // pairs[i] is the table's entry for (ids[i], ids[i + 1])
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = &find(ids[i], ids[i + 1]);
  while (n >= 2) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i]->rank < pairs[best]->rank) best = i;
    if (pairs[best]->rank == kNoRank) break;
    ids[best] = pairs[best]->result;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    if (best + 2 < n) std::copy(pairs + best + 2, pairs + n - 1, pairs + best + 1);
    --n;
    if (best > 0) pairs[best - 1] = &find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = &find(ids[best], ids[best + 1]);
  }
  return n;
}

// The same in O(n log n): symbols are a linked list over positions, pairs wait in a heap. A pair that has
// changed since it was pushed is recognised by its rank and skipped.
std::size_t MergeTable::apply_long(TokenId* ids, std::size_t n) const {
  constexpr std::uint32_t kEnd = 0xffffffffu;
  struct Node {
    std::uint32_t previous, next;
    std::uint32_t rank;  // of the pair that begins here
  };
  const auto count = static_cast<std::uint32_t>(n);
  std::vector<Node> nodes(n);
  std::vector<std::uint64_t> waiting;  // rank << 32 | position: the smallest is the next to merge
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = i + 1 < count ? find(ids[i], ids[i + 1]).rank : kNoRank;
    nodes[i] = {i == 0 ? kEnd : i - 1, i + 1 < count ? i + 1 : kEnd, rank};
    if (rank != kNoRank) waiting.push_back(std::uint64_t{rank} << 32 | i);
  }
  std::priority_queue heap(std::greater<>{}, std::move(waiting));
  const auto refresh = [&](std::uint32_t at) {  // the pair beginning at `at` is new
    Node& node = nodes[at];
    node.rank = node.next == kEnd ? kNoRank : find(ids[at], ids[node.next]).rank;
    if (node.rank != kNoRank) heap.push(std::uint64_t{node.rank} << 32 | at);
  };
  while (!heap.empty()) {
    const std::uint64_t top = heap.top();
    heap.pop();
    const auto at = static_cast<std::uint32_t>(top);
    Node& node = nodes[at];
    if (node.rank != top >> 32) continue;
    Node& gone = nodes[node.next];
    ids[at] = find(ids[at], ids[node.next]).result;
    gone.rank = kNoRank;
    node.next = gone.next;
    if (node.next != kEnd) nodes[node.next].previous = at;
    refresh(at);
    if (node.previous != kEnd) refresh(node.previous);
  }
  std::size_t kept = 0;
  for (std::uint32_t at = 0; at != kEnd; at = nodes[at].next) ids[kept++] = ids[at];
  return kept;
}

}  // namespace ddl
