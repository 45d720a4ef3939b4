// ddl tokenizer train | add | encode | decode | info
#include "data/tokenizer.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/index.h"
#include "core/record.h"
#include "data/bpe_train.h"
#include "data/corpus.h"
#include "data/progress_line.h"
#include "data/shard.h"
#include "data/stored_tokenizers.h"
#include "io/file.h"

namespace ddl {
namespace {

constexpr std::uint64_t kTextBytes = std::uint64_t{1} << 30;  // of standard input

std::string read_stdin() { return read_standard_input(kTextBytes); }

// Words of all documents of the inputs; returns how many documents there were.
Index count_words(const std::vector<std::string>& inputs, const CorpusOptions& options, std::FILE* progress,
                  WordCounter& words) {
  CorpusReader reader(inputs, options);
  ProgressLine line("counting words", ProgressLine::Unit::kBytes, reader.bytes_total(), progress);
  Document document;
  while (reader.next(document)) {
    words.add(document.text);
    line.update(reader.bytes_read());
  }
  for (const std::string& message : reader.bad_rows().first()) fmt::print(stderr, "left out: {}\n", message);
  if (const Index bad = reader.bad_rows().count(); bad > 0)
    fmt::print(stderr, "{} bad rows left out in all\n", bad);
  return reader.documents();
}

// The commands.

struct TrainArgs {
  std::vector<std::string> inputs;
  std::string out;
  CorpusOptions corpus;
  Index vocab = 8192;
  bool json = false;
};

void train_command(const TrainArgs& args) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::FILE* const progress = args.json ? nullptr : stderr;
  WordCounter words(default_exec());
  const Index documents = count_words(args.inputs, args.corpus, progress, words);
  if (words.bytes() == 0)
    throw UserError("{}: expected text to train on, found none", fmt::join(args.inputs, ", "));
  BpeVocabulary vocabulary;
  {
    ProgressLine line("merging", ProgressLine::Unit::kTokens, static_cast<std::uint64_t>(args.vocab),
                      progress);
    vocabulary = train_bpe(words, args.vocab,
                           [&](Index done, Index) { line.update(static_cast<std::uint64_t>(done)); });
  }
  const BpeTokenizer tokenizer(std::move(vocabulary));
  tokenizer.save(args.out);

  Json record = make_record("tokenizer_train");
  record["out"] = args.out;
  record["documents"] = documents;
  record["bytes"] = words.bytes();
  record["vocab_size"] = tokenizer.vocab_size();
  record["end_of_text"] = tokenizer.end_of_text();
  record["seconds"] = seconds();
  if (args.json) {
    fmt::print("{}\n", to_line(record));
    return;
  }
  fmt::print("{}: {} tokens from {} documents, {:.1f} MB, in {:.1f} s; end of text is {}\n", args.out,
             tokenizer.vocab_size(), documents, static_cast<double>(words.bytes()) / 1e6, seconds(),
             tokenizer.end_of_text());
  if (tokenizer.vocab_size() < args.vocab)
    fmt::print(
        "{} tokens were asked for; no pair of tokens occurs twice any more, so more would be of no use\n",
        args.vocab);
}

struct EncodeArgs {
  std::string tokenizer, text = "-";
  bool json = false, special = false;
};

void encode_command(const EncodeArgs& args) {
  const auto tokenizer = load_tokenizer(args.tokenizer);
  const std::string text = args.text == "-" ? read_stdin() : args.text;
  std::vector<TokenId> ids;
  if (args.special)
    encode_with_end_of_text(*tokenizer, text, ids);
  else
    tokenizer->encode(text, ids);
  if (!args.json) {
    fmt::print("{}\n", fmt::join(ids, " "));
    return;
  }
  Json record = make_record("tokenizer_encode");
  record["bytes"] = text.size();
  record["tokens"] = ids.size();
  record["ids"] = ids;
  Json& pieces = record["pieces"] = Json::array();
  for (const TokenId id : ids) pieces.push_back(tokenizer->decode({&id, 1}));
  fmt::print("{}\n", to_line(record));
}

struct DecodeArgs {
  std::string tokenizer;
  std::vector<std::string> ids;
};

void decode_command(const DecodeArgs& args) {
  const auto tokenizer = load_tokenizer(args.tokenizer);
  std::string words = fmt::format("{}", fmt::join(args.ids, " "));
  if (args.ids.empty() || words == "-") words = read_stdin();
  std::vector<TokenId> ids;
  Index outside = 0;
  std::istringstream stream(std::move(words));
  for (std::string word; stream >> word;) {
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size())
      throw UserError("expected token ids (whole numbers) with spaces between them, found '{}'",
                      word.substr(0, 80));
    outside += static_cast<Index>(id) >= tokenizer->vocab_size();
    ids.push_back(id);
  }
  const std::string text = tokenizer->decode(ids);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (::isatty(STDOUT_FILENO)) std::fputc('\n', stdout);  // elsewhere the bytes are exact
  if (outside > 0)
    fmt::print(stderr, "ddl: {} of {} ids are outside the vocabulary (0 to {}) and stand for nothing\n",
               outside, ids.size(), tokenizer->vocab_size() - 1);
}

struct AddArgs {
  std::string name;
  std::vector<std::string> files;
};

struct InfoArgs {
  std::string tokenizer;
  bool json = false;
};

void info_command(const InfoArgs& args) {
  const auto tokenizer = load_tokenizer(args.tokenizer);
  const TokenId end_id = tokenizer->end_of_text();
  Index unused = 0;
  std::vector<std::string> tokens;
  for (TokenId id = 0; static_cast<Index>(id) < tokenizer->vocab_size(); ++id) {
    tokens.push_back(tokenizer->decode({&id, 1}));
    unused += tokens.back().empty();
  }
  std::stable_sort(tokens.begin(), tokens.end(), [](auto& a, auto& b) { return a.size() > b.size(); });
  Json record = make_record("tokenizer_info");
  record["tokenizer"] = args.tokenizer;
  record["name"] = tokenizer->name();
  record["vocab_size"] = tokenizer->vocab_size();
  record["end_of_text"] = end_id;
  record["end_of_text_text"] = tokenizer->decode({&end_id, 1});
  record["unused_ids"] = unused;
  record["longest_token_bytes"] = tokens.front().size();
  record["shard_token_bytes"] = token_bytes_for(tokenizer->vocab_size());
  if (args.json) {
    fmt::print("{}\n", to_line(record));
    return;
  }
  fmt::print(
      "{}\n  vocabulary     {} ids{}\n  end of text    {} {}\n  longest token  {} bytes\n  in shards      {} "
      "bytes per token\n",
      tokenizer->name(), tokenizer->vocab_size(),
      unused > 0 ? fmt::format(", {} of them unused", unused) : "", end_id,
      record["end_of_text_text"].get<std::string>(), tokens.front().size(),
      record["shard_token_bytes"].get<int>());
}

}  // namespace

void add_tokenizer_command(Command app) {
  Command tokenizer = app.add_command("tokenizer", "Train, use and look at tokenizers");
  tokenizer.require_command();
  const std::string what = "Folder, file, \"bytes\" or the name of an added one (docs/tokenizers.md)";

  auto train = std::make_shared<TrainArgs>();
  Command command = tokenizer.add_command("train", "Train a byte-level BPE tokenizer on text");
  command
      .add_option(
          "INPUT", train->inputs,
          "Files or folders of .txt, .md, .jsonl (also .gz, .zst) or .parquet, or - for standard input")
      .required();
  command.add_option("--vocab", train->vocab, "Vocabulary size: 256 bytes, merged tokens, end of text")
      .show_default();
  command.add_option("--out", train->out, "Folder for tokenizer.json").required();
  command
      .add_option("--field", train->corpus.field,
                  "The field of JSON Lines, CSV, TSV and Parquet with the text")
      .show_default();
  command.add_option("--format", train->corpus.format, "auto (by name), text, jsonl, csv, tsv or parquet")
      .one_of({"auto", "text", "jsonl", "csv", "tsv", "parquet"})
      .show_default();
  command.add_option("--skip-bad", train->corpus.skip_bad, "Bad rows to leave out before it is an error")
      .non_negative()
      .show_default();
  command.add_flag("--json", train->json, "Print a JSON record");
  command.on_run([train] { train_command(*train); });

  auto add = std::make_shared<AddArgs>();
  command = tokenizer.add_command("add", "Give a tokenizer a name, for --tokenizer NAME from then on");
  command.add_option("NAME", add->name, "For example gpt2").required();
  command
      .add_option("FILES", add->files,
                  "A tokenizer's folder or file; or a vocabulary (.json) and its merges under any names")
      .required();
  command.on_run([add] {
    const std::string folder = store_tokenizer(add->name, add->files);
    fmt::print("{}: {}, kept in {}\nNext: ./ddl data prepare TEXT --tokenizer {} --out DATA\n", add->name,
               load_tokenizer(folder)->name(), folder, add->name);
  });

  auto encode = std::make_shared<EncodeArgs>();
  command = tokenizer.add_command("encode", "Text to token ids");
  command.add_option("T", encode->tokenizer, what).required();
  command.add_option("TEXT", encode->text, "The text, or - for standard input").show_default();
  command.add_flag("--special", encode->special, "Make <|endoftext|> in the text the end-of-text token");
  command.add_flag("--json", encode->json, "Print a JSON record with the pieces");
  command.on_run([encode] { encode_command(*encode); });

  auto decode = std::make_shared<DecodeArgs>();
  command = tokenizer.add_command("decode", "Token ids to text");
  command.add_option("T", decode->tokenizer, what).required();
  command.add_option("IDS", decode->ids, "Token ids, or - (or none) for standard input");
  command.on_run([decode] { decode_command(*decode); });

  auto info = std::make_shared<InfoArgs>();
  command = tokenizer.add_command("info", "What a tokenizer is");
  command.add_option("T", info->tokenizer, what).required();
  command.add_flag("--json", info->json, "Print a JSON record");
  command.on_run([info] { info_command(*info); });
}

}  // namespace ddl
