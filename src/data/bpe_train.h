// Trains a byte-level BPE vocabulary.
#pragma once

#include "core/function_ref.h"
#include "core/index.h"
#include "data/bpe.h"
#include "data/word_count.h"

namespace ddl {

// Starts from the 256 bytes and makes the most frequent neighbouring pair a token, again and again. Of pairs
// equally frequent the one with the smaller left id is taken, then the smaller right id, so the result is a
// function of the text alone.
//
// Ids: 0..255 are the bytes, then come the merged tokens in the order in which they were made, then end of
// text, vocab_size - 1. Where no pair occurs twice any more, training ends with fewer tokens than asked for.
//
// `progress(done, total)` is called every so often with numbers of tokens.
BpeVocabulary train_bpe(WordCounter& words, Index vocab_size, FunctionRef<void(Index, Index)> progress);
BpeVocabulary train_bpe(WordCounter& words, Index vocab_size);

}  // namespace ddl
