// Text to token ids and back. A tokenizer is immutable after loading: several threads may use it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"

namespace ddl {

using TokenId = std::uint32_t;

inline constexpr std::uint64_t kTokenizerFileBytes = std::uint64_t{256} << 20;  // of the largest that is read

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` (any bytes, valid UTF-8 or not). Special tokens are never recognised in the
  // text: "<|endoftext|>" typed by a user is ordinary text.
  virtual void encode(std::string_view text, std::vector<TokenId>& ids) const = 0;

  // The bytes of any ids: decode(encode(x)) == normalized(x), and an id outside the vocabulary decodes to "".
  virtual std::string decode(std::span<const TokenId> ids) const = 0;

  // The text that the ids of `text` stand for: `text` itself, but for tokenizers that normalise (nfc.h); theirs may be
  // in `buffer`.
  virtual std::string_view normalized(std::string_view text, std::string& buffer) const {
    static_cast<void>(buffer);
    return text;
  }

  virtual Index vocab_size() const = 0;     // ids are in [0, vocab_size())
  virtual TokenId end_of_text() const = 0;  // begins every document
  virtual std::string name() const = 0;     // "bytes", "gpt2-style bpe, 50257 tokens", "..., NFC"

  // Writes tokenizer.json and tokenizer_config.json into the folder, in Hugging Face's format.
  virtual void save(const std::string& folder) const = 0;
};

// `path` is "bytes" (256 byte values + end of text), or a file or folder in one of the usual formats:
// tokenizer.json, encoder.json + vocab.bpe, vocab.json + merges.txt, *.tiktoken; or, where there is no such path, the name
// of a tokenizer that was added (stored_tokenizers.h).
// Throws UserError saying what was found.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace ddl
