// Any bytes as a tokenizer file: either a UserError, or a tokenizer that gives every text back, normalised if it says so.
// The first byte chooses the format: tokenizer.json, vocab.json + merges.txt (after a NUL) or .tiktoken.
//
// With clang this is a libFuzzer target; tests/fuzz/driver.cc runs it on a fixed number of mutations.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "data/bpe_parse.h"
#include "data/byte_alphabet.h"
#include "data/nfc.h"
#include "fuzz/driver.h"

namespace {

ddl::BpeVocabulary parse(char format, std::string_view text) {
  if (format == 't') return ddl::parse_tiktoken(text, "fuzz.tiktoken");
  if (format == 'v') {
    const std::size_t end = std::min(text.find('\0'), text.size());
    return ddl::parse_vocab_and_merges(text.substr(0, end), "fuzz.json",
                                       text.substr(std::min(end + 1, text.size())), "fuzz.txt");
  }
  return ddl::parse_tokenizer_json(text, "fuzz.json");
}

std::string vocab_json() {
  std::string json = "{";
  for (int b = 0; b < 256; ++b) {
    json += b == '"' || b == '\\' ? "\"\\" : "\"";
    json += ddl::to_byte_alphabet(std::string(1, static_cast<char>(b)));
    json += "\":" + std::to_string(b) + ",";
  }
  return json + "\"ab\":256,\"abc\":257,\"<|endoftext|>\":258}";
}

// Form C of any bytes: the same when it is done again, or in two parts.
void check_nfc(std::string_view text) {
  std::string buffer, other;
  const std::string whole(ddl::to_nfc(text, buffer));
  if (ddl::to_nfc(whole, other) != whole) std::abort();
  const std::size_t cut = text.size() / 2;
  if ((static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80 || !ddl::can_cut_nfc(text, cut)) return;
  std::string first(ddl::to_nfc(text.substr(0, cut), buffer));
  if (first.append(ddl::to_nfc(text.substr(cut), other)) != whole) std::abort();
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string ranks = "t";
  for (std::size_t b = 0; b < 256; ++b)
    ranks += std::string{digits[b >> 2], digits[(b & 3) << 4]} + "== " + std::to_string(b) + "\n";
  ranks += "YWI= 256\nYWJj 257\nYWFhYQ== 259\n";
  std::string json =
      R"(j{"added_tokens":[{"id":258,"content":"<|endoftext|>","special":true}],"normalizer":null,)"
      R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)"
      R"("model":{"type":"BPE","dropout":null,"byte_fallback":false,"vocab":)";
  json += vocab_json();
  json += R"(,"merges":["a b",["ab","c"]]}})";
  std::string nfc = json;  // the file is the text that is encoded, too
  nfc.replace(nfc.find("\"normalizer\":null"), 17,
              "\"normalizer\":{\"type\":\"NFC\"},\"e\u0301\u212b\u1112\u1161\u11ab\":\"a\u0302\u0323\"");
  std::string pair = "v";
  pair += vocab_json();
  pair += '\0';
  pair += "#version: 0.2\na b\nab c\n";
  return {json, nfc, pair, ranks, "e\u0301\u212b\u1112\u1161\u11ab\u0323\u0301\uac00\u11a7\u0958\u0344"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_nfc(input);
  try {
    const ddl::BpeTokenizer tokenizer(parse(input[0], input.substr(1)));
    std::vector<ddl::TokenId> ids;
    tokenizer.encode(input, ids);
    for (const ddl::TokenId id : ids)
      if (static_cast<ddl::Index>(id) >= tokenizer.vocab_size() || id == tokenizer.end_of_text())
        std::abort();
    std::string buffer, again;
    const std::string_view text = tokenizer.normalized(input, buffer);
    if (tokenizer.decode(ids) != text || tokenizer.normalized(text, again) != text) std::abort();
  } catch (const ddl::UserError&) {
  }
  return 0;
}
