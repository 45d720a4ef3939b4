#include "data/word_count.h"

#include <algorithm>

#include "data/pretokenize.h"

namespace ddl {
namespace {

constexpr std::size_t kCountBytes = std::size_t{1} << 20;     // counted by one thread at a time: milliseconds
constexpr std::size_t kWaitingBytes = std::size_t{32} << 20;  // text held before it is counted

}  // namespace

void WordCounter::add(std::string_view document) {
  ++documents_;
  bytes_ += document.size();
  while (!document.empty()) {
    if (pieces_.empty() || pieces_.back().text.size() >= kCountBytes) pieces_.emplace_back();
    Piece& piece = pieces_.back();
    const std::size_t room = kCountBytes - piece.text.size();
    const std::size_t cut = document.size() <= room ? document.size() : safe_cut(document, room);
    piece.text += document.substr(0, cut);
    piece.ends.push_back(piece.text.size());
    document.remove_prefix(cut);
    waiting_bytes_ += cut;
    if (waiting_bytes_ >= kWaitingBytes) flush();
  }
}

void WordCounter::flush() {
  std::vector<ByteMap<std::uint64_t>> parts(pieces_.size());
  parallel_for(static_cast<Index>(pieces_.size()), exec_, [&](Index p) {
    const Piece& piece = pieces_[static_cast<std::size_t>(p)];
    auto& part = parts[static_cast<std::size_t>(p)];
    std::size_t begin = 0;
    for (const std::size_t end : piece.ends) {
      for_each_pretoken(std::string_view(piece.text).substr(begin, end - begin),
                        [&](std::string_view word) { ++part[word]; });
      begin = end;
    }
  });
  for (const auto& part : parts)
    part.for_each([&](std::string_view word, std::uint64_t count) { counts_[word] += count; });
  pieces_.clear();
  waiting_bytes_ = 0;
}

std::vector<std::pair<std::string_view, std::uint64_t>> WordCounter::words() {
  flush();
  std::vector<std::pair<std::string_view, std::uint64_t>> words;
  words.reserve(counts_.size());
  counts_.for_each([&](std::string_view word, std::uint64_t count) { words.emplace_back(word, count); });
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace ddl
