// Tasks that need several steps for one answer, so that a model must replace an intermediate value layer after layer.
// Each is one line of text whose answers are exact. Lengths are drawn uniformly from a range; a corpus of longer ones
// than a model was trained on is the same command with another range. docs/data.md has examples and what to expect.
#pragma once

#include <cstdint>
#include <string>

#include "core/index.h"
#include "data/generated_corpus.h"

namespace ddl {

// "d>b a>c b>a c>d 2a?d 2d?a": arrows that form one cycle through all symbols, then questions: where do so many hops
// from a symbol lead? No question is asked twice.
struct HopOptions {
  Index symbols = 16;  // a ... z; all hops are fewer, so that no walk comes back to its start
  Index min_hops = 1, max_hops = 6;
  Index questions = 4;
  void check() const;
};
GeneratedDocument generate_hops(const HopOptions& options, std::uint64_t seed, Index i);

// "cafb=f": the product of random elements of S3 or S5, the leftmost applied first. An element's name is its place in the
// lexicographic list of permutations: a ... f in S3, a1 a2 ... a5 b1 ... x5 in S5.
struct GroupOptions {
  std::string group = "s3";  // s3 | s5
  Index min_length = 2, max_length = 16;
  void check() const;
};
GeneratedDocument generate_group(const GroupOptions& options, std::uint64_t seed, Index i);

// "2ca 1ab 2bc 1bc 1ca 2ab a?c": permutations without fixed points, each arrow with the number of its permutation,
// in random order. A question asks where a symbol goes under 1, then 2, and so on through all; never back to itself.
struct ReplaceOptions {
  Index symbols = 8;                   // 3 ... 26
  Index min_depth = 1, max_depth = 4;  // permutations, at most 9
  Index questions = 2;
  void check() const;
};
GeneratedDocument generate_replace(const ReplaceOptions& options, std::uint64_t seed, Index i);

// "617+48=665". Each number has from min_digits to max_digits digits. Padded, both have max_digits and the sum one more:
// "0617+0048=00665".
struct AdditionOptions {
  Index min_digits = 1, max_digits = 4;  // at most 18
  bool padded = false;
  void check() const;
};
GeneratedDocument generate_addition(const AdditionOptions& options, std::uint64_t seed, Index i);

}  // namespace ddl
