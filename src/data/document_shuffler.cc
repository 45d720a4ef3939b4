#include "data/document_shuffler.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/rng.h"

namespace ddl {
namespace {

using Piece = ShuffledDocument::Piece;
constexpr std::size_t kHeaderBytes = offsetof(Piece, offset);  // as written before each piece's tokens
// Above this the pages already read of a bucket are given back: a bucket is as large as its documents.
constexpr std::uint64_t kReleaseBytes = std::uint64_t{128} << 20;

std::uint64_t payload_bytes(const Piece& piece, int token_bytes) {
  return piece.tokens * static_cast<std::uint64_t>(token_bytes) + (piece.has_answers ? piece.tokens : 0);
}

std::vector<Piece> pieces_in(const MappedFile& file, int token_bytes) {
  std::vector<Piece> pieces;
  const auto bytes = file.bytes();
  std::uint64_t released = 0;
  for (std::uint64_t at = 0; at < bytes.size();) {
    Piece piece{};
    std::memcpy(&piece, bytes.data() + at, kHeaderBytes);
    piece.offset = at + kHeaderBytes;
    at = piece.offset + payload_bytes(piece, token_bytes);
    pieces.push_back(piece);
    if (at - released > kReleaseBytes) file.release(), released = at;
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.key, a.index, a.piece) < std::tie(b.key, b.index, b.piece);
  });
  return pieces;
}

}  // namespace

Index ShuffledDocument::tokens() const {
  Index total = 0;
  for (const Piece& piece : pieces_) total += static_cast<Index>(piece.tokens);
  return total;
}

void ShuffledDocument::read(Index i, std::vector<TokenId>& tokens, std::vector<std::uint8_t>& answers) const {
  const Piece& piece = pieces_[static_cast<std::size_t>(i)];
  const std::byte* from = file_.bytes().data() + piece.offset;
  tokens.resize(piece.tokens);
  if (token_bytes_ == 4) {
    std::memcpy(tokens.data(), from, piece.tokens * 4);
  } else {
    for (std::uint64_t t = 0; t < piece.tokens; ++t) {
      std::uint16_t token = 0;  // pieces lie at any address
      std::memcpy(&token, from + 2 * t, 2);
      tokens[t] = token;
    }
  }
  answers.assign(piece.tokens, 0);
  if (piece.has_answers) std::memcpy(answers.data(), from + piece.tokens * token_bytes_, piece.tokens);
  // One document may be as large as the disk; its pages must not gather in memory.
  touched_bytes_ += payload_bytes(piece, token_bytes_);
  if (touched_bytes_ > kReleaseBytes) file_.release(), touched_bytes_ = 0;
}

DocumentShuffler::DocumentShuffler(std::string folder, int token_bytes, std::uint64_t seed)
    : folder_(std::move(folder)), token_bytes_(token_bytes), seed_(seed), buckets_(1u << kBucketBits) {
  make_folders(folder_);
}

DocumentShuffler::~DocumentShuffler() {
  try {
    remove_all(folder_);
  } catch (const UserError&) {  // whoever made the folder around it removes that, or says why not
  }
}

std::string DocumentShuffler::bucket_path(std::size_t bucket) const {
  return fmt::format("{}/{:03}", folder_, bucket);
}

void DocumentShuffler::add(Index document, Index piece, std::span<const TokenId> tokens,
                           std::span<const std::uint8_t> answers) {
  DDL_CHECK(answers.empty() || answers.size() == tokens.size(), "{} answers", answers.size());
  const auto index = static_cast<std::uint64_t>(document);
  const Piece header{Random(seed_, "document order").bits(index),
                     index,
                     static_cast<std::uint32_t>(piece),
                     answers.empty() ? 0u : 1u,
                     tokens.size(),
                     0};
  const std::size_t bucket = header.key >> (64 - kBucketBits);
  if (!buckets_[bucket]) buckets_[bucket] = std::make_unique<FileWriter>(bucket_path(bucket));
  FileWriter& file = *buckets_[bucket];
  file.write(&header, kHeaderBytes);
  if (token_bytes_ == 4) {
    file.write(tokens.data(), tokens.size_bytes());
  } else {
    std::vector<std::uint16_t> narrow_tokens(tokens.begin(), tokens.end());
    file.write(narrow_tokens.data(), narrow_tokens.size() * 2);
  }
  file.write(answers.data(), answers.size());
  tokens_ += std::ssize(tokens);
  has_answers_ = has_answers_ || !answers.empty();
}

void DocumentShuffler::for_each(FunctionRef<void(const ShuffledDocument&)> visit) {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (!buckets_[bucket]) continue;
    buckets_[bucket]->flush();
    buckets_[bucket].reset();
    const std::string path = bucket_path(bucket);
    {
      const MappedFile file(path);
      const std::vector<Piece> pieces = pieces_in(file, token_bytes_);
      std::uint64_t touched = 0;
      for (std::size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
        while (end < pieces.size() && pieces[end].index == pieces[begin].index)
          touched += payload_bytes(pieces[end++], token_bytes_);
        visit(ShuffledDocument(file, std::span(pieces).subspan(begin, end - begin), token_bytes_));
        if (touched > kReleaseBytes) file.release(), touched = 0;
      }
    }
    remove_all(path);  // so that the shards and these files never take much more space than one of them
  }
}

}  // namespace ddl
