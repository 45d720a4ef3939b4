// Where a long text may be cut so that the parts, tokenised on their own, give the tokens of the whole.
#pragma once

#include <cstddef>
#include <string_view>

namespace ddl {

// Files are read this much at a time.
inline constexpr std::size_t kReadBytes = std::size_t{1} << 18;

// A document is handled in pieces of about this size: enough to spread over cores, little enough that any
// document fits in memory.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 18;
inline constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 22;

// The first exact cut at `at_least` or after, or npos. A cut is exact before a single line break between an
// ASCII letter or digit and a visible ASCII character: byte-level BPE's pre-tokenisation ends a piece there
// and does not look further, in GPT-2's pattern and in later ones. Nothing combines across it either (nfc.h).
std::size_t exact_cut(std::string_view text, std::size_t at_least);

// Where to cut a text of which `text` is what has been read so far; npos to read on. Cuts exactly where it
// can within kMaxPieceBytes, else between two UTF-8 characters that do not combine.
std::size_t piece_end(std::string_view text);

// Nothing but ASCII white space.
bool is_blank(std::string_view text);

}  // namespace ddl
