#include "data/shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>

namespace ddl {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read as they are");

constexpr std::int32_t kMagic = 20240520, kLlama3Magic = 20240801, kLlama3Version = 7;
using Header = std::array<std::int32_t, kShardHeaderBytes / sizeof(std::int32_t)>;

constexpr Index kChecksumBytes = Index{1} << 22;  // one checksum per this many bytes

// Eight independent hashes, each h = rotate((h ^ word) * odd): the processor computes them at once, faster
// than memory delivers the words. Every step can be undone, so a change of one word always shows. Two changes
// that cancel do not happen by chance, but can be made on purpose.
using Checksum = std::array<std::uint64_t, 8>;
Checksum checksum(std::span<const std::byte> bytes) {
  Checksum h{};
  const auto add = [&](const std::byte* block) {
    for (std::size_t i = 0; i < h.size(); ++i) {
      std::uint64_t word;
      std::memcpy(&word, block + 8 * i, sizeof word);
      h[i] = std::rotl((h[i] ^ word) * 0x9e3779b97f4a7c15u, 29);
    }
  };
  std::size_t at = 0;
  for (; at + sizeof h <= bytes.size(); at += sizeof h) add(bytes.data() + at);
  if (at < bytes.size()) {
    std::array<std::byte, sizeof h> rest{};
    std::memcpy(rest.data(), bytes.data() + at, bytes.size() - at);
    add(rest.data());
  }
  return h;
}

template <class T>
TokenId largest_of(std::span<const std::byte> bytes) {
  T top = 0;
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T token;
    std::memcpy(&token, bytes.data() + at, sizeof token);
    top = std::max(top, token);
  }
  return top;
}

}  // namespace

ShardWriter::ShardWriter(const std::string& path, int token_bytes) : file_(path), token_bytes_(token_bytes) {
  const Header zeros{};  // no magic yet: an unfinished shard is not taken for one
  file_.write(zeros.data(), sizeof zeros);
}

void ShardWriter::write(std::span<const TokenId> tokens) {
  tokens_ += std::ssize(tokens);
  DDL_CHECK(tokens_ <= kMaxShardTokens, "{} tokens in one shard", tokens_);
  if (token_bytes_ == 4) return file_.write(tokens.data(), tokens.size_bytes());
  narrow_.resize(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    DDL_DCHECK(tokens[i] <= 0xffff, "token {}", tokens[i]);
    narrow_[i] = static_cast<std::uint16_t>(tokens[i]);
  }
  file_.write(narrow_.data(), narrow_.size() * 2);
}

void ShardWriter::finish() {
  Header header{};
  header[0] = kMagic;
  header[1] = token_bytes_ == 2 ? 1 : 2;
  header[2] = narrow<std::int32_t>(tokens_);
  file_.write_at(0, header.data(), sizeof header);
  file_.sync();
}

TokenShard::TokenShard(const std::string& path, BareFiles bare) : path_(path), file_(path) {
  const auto bytes = static_cast<Index>(file_.size());
  Header header{};
  file_.read(0, header.data(), std::min<std::size_t>(file_.size(), sizeof header));
  const bool llama3 = header[0] == kLlama3Magic;
  if (header[0] == kMagic || llama3) {
    const std::int32_t version = header[1];
    if (llama3 ? version != kLlama3Version : version != 1 && version != 2)
      throw UserError("{}: shard version {} of magic {} is not known; expected 1 (uint16) or 2 (uint32)",
                      path, version, header[0]);
    token_bytes_ = version == 1 ? 2 : 4;
    header_bytes_ = kShardHeaderBytes;
    tokens_ = header[2];
    if (tokens_ < 0) throw UserError("{}: the header says {} tokens", path, tokens_);
    const Index expected = header_bytes_ + tokens_ * token_bytes_;
    if (bytes != expected)
      throw UserError(
          "{}: the header says {} tokens, which take {} bytes with it, but the file has {}; it is "
          "{}",
          path, tokens_, expected, bytes, bytes < expected ? "truncated" : "not what its header says");
  } else if (bare == BareFiles::kAccept) {
    if (bytes % 2 != 0) throw UserError("{}: {} bytes is not a whole number of uint16 tokens", path, bytes);
    tokens_ = bytes / 2;
  } else {
    throw UserError("{}: not a token shard: it begins with {}, expected the magic {}", path, header[0],
                    kMagic);
  }
  const std::string sidecar = answers_path(path);
  if (sidecar != path && std::filesystem::exists(sidecar)) {
    answers_ = SteadyFile(sidecar);
    if (static_cast<Index>(answers_.size()) != tokens_)
      throw UserError("{}: {} bytes, expected {}, one for each token of {}", sidecar, answers_.size(),
                      tokens_, path);
  }
}

void TokenShard::read_raw(Index begin, Index count, TokenId* out) const {
  DDL_CHECK(begin >= 0 && count >= 0 && begin + count <= tokens_, "{} + {} of {}", begin, count, tokens_);
  const auto offset = static_cast<std::uint64_t>(header_bytes_ + begin * token_bytes_);
  if (token_bytes_ == 4) return file_.read(offset, out, static_cast<std::size_t>(count) * 4);
  std::array<std::uint16_t, 4096> narrow_tokens;
  for (Index done = 0; done < count;) {
    const Index here = std::min<Index>(count - done, std::ssize(narrow_tokens));
    file_.read(offset + static_cast<std::uint64_t>(done) * 2, narrow_tokens.data(),
               static_cast<std::size_t>(here) * 2);
    std::copy_n(narrow_tokens.begin(), here, out + done);
    done += here;
  }
}

void TokenShard::read(Index begin, Index count, TokenId* out) const {
  read_raw(begin, count, out);
  // The time of a change does not show every one: what is written through a mapping comes without.
  for (Index i = 0; i < count; ++i)
    if (out[i] > largest_)
      throw UserError(
          "{}: changed while it was in use: token {} at position {}, where the largest was {}; put the old "
          "file "
          "back",
          path_, out[i], begin + i, largest_);
}

void TokenShard::read_answers(Index begin, Index count, std::uint8_t* out) const {
  DDL_CHECK(begin >= 0 && count >= 0 && begin + count <= tokens_, "{} + {} of {}", begin, count, tokens_);
  if (count == 0) return;
  if (has_answers())
    answers_.read(static_cast<std::uint64_t>(begin), out, static_cast<std::size_t>(count));
  else
    std::fill_n(out, count, std::uint8_t{0});
}

TokenShard::Contents TokenShard::read_all(const Exec& ex) const {
  const Index token_bytes = tokens_ * token_bytes_, answer_bytes = has_answers() ? tokens_ : 0;
  const Index token_chunks = ceil_div(token_bytes, kChecksumBytes),
              chunks = token_chunks + ceil_div(answer_bytes, kChecksumBytes);
  std::vector<TokenId> largest(static_cast<std::size_t>(token_chunks), 0);
  std::vector<Checksum> sums(static_cast<std::size_t>(chunks));
  parallel_for(chunks, ex, [&](Index c) {
    const bool of_tokens = c < token_chunks;
    const Index begin = (of_tokens ? c : c - token_chunks) * kChecksumBytes;
    const Index count = std::min((of_tokens ? token_bytes : answer_bytes) - begin, kChecksumBytes);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    (of_tokens ? file_ : answers_)
        .read(static_cast<std::uint64_t>((of_tokens ? header_bytes_ : 0) + begin), bytes.data(),
              bytes.size());
    sums[c] = checksum(bytes);
    if (of_tokens)
      largest[c] = token_bytes_ == 4 ? largest_of<std::uint32_t>(bytes) : largest_of<std::uint16_t>(bytes);
  });
  Contents contents;
  for (const TokenId token : largest) contents.largest = std::max(contents.largest, token);
  for (const Checksum& sum : sums)
    contents.checksums.insert(contents.checksums.end(), sum.begin(), sum.end());
  return contents;
}

std::optional<TokenShard::Bad> TokenShard::find_out_of_range(Index vocab_size, const Exec& ex) const {
  constexpr Index kChunk = Index{1} << 20;
  std::vector<std::optional<Bad>> first(static_cast<std::size_t>(ceil_div(tokens_, kChunk)));
  parallel_chunks(tokens_, kChunk, ex, [&](Index begin, Index end) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(end - begin));
    read_raw(begin, end - begin, tokens.data());
    const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                  [&](TokenId token) { return static_cast<Index>(token) >= vocab_size; });
    if (bad != tokens.end()) first[begin / kChunk] = Bad{begin + (bad - tokens.begin()), *bad};
  });
  for (const auto& bad : first)
    if (bad) return bad;
  return std::nullopt;
}

std::string answers_path(const std::string& shard_path) {
  if (!shard_path.ends_with(".bin")) return shard_path;
  return shard_path.substr(0, shard_path.size() - 4) + ".answers";
}

}  // namespace ddl
