// ddl data get | prepare | info | generate
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "core/arena.h"
#include "core/error.h"
#include "core/exec.h"
#include "core/json.h"
#include "core/record.h"
#include "data/dataset.h"
#include "data/dataset_info.h"
#include "data/depth_tasks.h"
#include "data/generated_corpus.h"
#include "data/prepare.h"
#include "data/published.h"
#include "data/tokenizer.h"

namespace ddl {
namespace {

// "\n", "\t" and "\\" as a shell user writes them.
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'n')
      out += '\n';
    else if (c == 't')
      out += '\t';
    else if (c == 'r')
      out += '\r';
    else if (c == '\\')
      out += '\\';
    else
      throw UserError("--separator: unknown escape \\{}; expected \\n, \\t, \\r or \\\\", c);
  }
  return out;
}

void prepare(PrepareOptions options, const std::string& tokenizer_path, bool json) {
  const auto start = std::chrono::steady_clock::now();
  options.corpus.separator = unescape(options.corpus.separator);
  if (!json) options.progress = stderr;
  const auto tokenizer = load_tokenizer(tokenizer_path);
  const Json manifest = prepare_dataset(options, *tokenizer, default_exec());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (json) {
    Json record = make_record("prepare");
    record["seconds"] = elapsed.count();
    record["dataset"] = manifest;
    std::printf("%s\n", to_line(record).c_str());
    return;
  }
  double input_bytes = 0;
  for (const char* key : {"inputs", "val_inputs"})
    if (manifest.contains(key))
      for (const auto& input : manifest[key]) input_bytes += input["bytes"].get<double>();
  for (const char* key : {"bad_rows_first", "bad_rows_first_val"})
    if (manifest.contains(key))
      for (const auto& message : manifest[key])
        std::fprintf(stderr, "left out: %s\n", message.get<std::string>().c_str());
  if (const Index bad = manifest["bad_rows_left_out"].get<Index>(); bad > 0)
    std::fprintf(stderr, "%td bad rows left out in all\n", bad);
  std::printf("%s: %td documents, %td training and %td validation tokens (%s), %.1f s", options.out.c_str(),
              manifest["documents"].get<Index>(), manifest["train"]["tokens"].get<Index>(),
              manifest["val"]["tokens"].get<Index>(), manifest["tokenizer"].get<std::string>().c_str(),
              elapsed.count());
  if (input_bytes > 0) std::printf(", %.1f MB/s of input", input_bytes / 1e6 / elapsed.count());
  std::printf("\n");
  std::printf("Next: ./ddl data info %s, then ./ddl train --data %s --out RUN\n", options.out.c_str(),
              options.out.c_str());
}

// What there is, one line each.
void list_published(bool json) {
  if (json) {
    for (const PublishedSet& set : published_sets())
      std::printf("%s\n", to_line(check_published(set, set.folder)).c_str());
    return;
  }
  fmt::print("{:<15} {:>9}  {:<26} {}\n", "name", "size", "licence", "what");
  for (const PublishedSet& set : published_sets())
    fmt::print("{:<15} {:>9}  {:<26} {}\n", set.name, set.bytes() > 0 ? format_bytes(set.bytes()) : "?",
               set.licence.empty() ? "see its page" : set.licence, set.what);
  fmt::print("\n./ddl data get NAME downloads one (tasks: all evaluation tasks), or checks what is there.\n");
}

void get(const std::string& name, const std::string& out, bool check, bool json) {
  bool complete = true;
  std::string next, folder;
  for (const PublishedSet& set : find_published(name)) {
    folder = out.empty() ? set.folder : out;
    if (!json)
      fmt::print("{}: {}\n  from {}, licence {}{}\n", set.name, set.what, set.home, set.terms(),
                 set.bytes() > 0 ? ", " + format_bytes(set.bytes()) : "");
    std::fflush(stdout);
    if (!check) fetch_published(set, folder, json ? nullptr : stderr);
    const Json record = check_published(set, folder);
    if (json) std::printf("%s\n", to_line(record).c_str());
    for (const Json& file : record["files"]) {
      const std::string status = file["status"];
      complete = complete && status.starts_with("there");
      if (!json)
        fmt::print("  {}: {}{}\n", file["path"].get<std::string>(), status,
                   file.contains("difference") ? " (" + file["difference"].get<std::string>() + ")" : "");
      if (!json && status == "absent") fmt::print("    {}\n", file["url"].get<std::string>());
    }
    next = set.next;
  }
  if (!complete) throw ExitWithCode(1);
  if (!json) fmt::print("Next: {}\n", fmt::format(fmt::runtime(next), folder));
}

void add_get(Command data) {
  struct Args {
    std::string name, out;
    bool check = false, json = false;
  };
  auto args = std::make_shared<Args>();
  Command c = data.add_command("get", "download published data, or check what is there");
  c.add_option("NAME", args->name, "shakespeare, tinystories, gpt2, tasks, ...; without it, a list");
  c.add_option("--out", args->out, "the folder (default: one for its kind, such as corpora/NAME)");
  c.add_flag("--check", args->check, "only compare the files that are there with what was published");
  c.add_flag("--json", args->json, "one JSON record per set instead of text");
  c.on_run([args] {
    if (args->name.empty()) return list_published(args->json);
    get(args->name, args->out, args->check, args->json);
  });
}

void add_prepare(Command data) {
  auto options = std::make_shared<PrepareOptions>();
  auto tokenizer = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  Command c = data.add_command("prepare", "turn text into a dataset of token shards");
  c.add_option("INPUT", options->inputs,
               "files or folders of .txt, .md, .jsonl (also .gz, .zst) or .parquet, or - for standard input")
      .required();
  c.add_option("--tokenizer", *tokenizer, "a tokenizer's file or folder, or 'bytes'").required();
  c.add_option("--out", options->out, "the folder to write").required();
  c.add_option("--name", options->name, "name of the shards (default: that of the folder)");
  const Option fraction =
      c.add_option("--val-fraction", options->val_fraction, "share of the tokens held out").show_default();
  c.add_option("--val", options->val_inputs, "the validation split comes from this input instead")
      .excludes(fraction);
  c.add_option("--seed", options->seed, "decides the order of the documents").non_negative().show_default();
  c.add_option("--shard-tokens", options->shard_tokens, "tokens per shard").show_default();
  c.add_option("--field", options->corpus.field,
               "which field of JSON Lines, CSV, TSV and Parquet holds the text")
      .show_default();
  c.add_option("--separator", options->corpus.separator,
               "splits text files into documents (\\n is a line break)");
  c.add_option("--format", options->corpus.format, "auto (by name), text, jsonl, csv, tsv or parquet")
      .one_of({"auto", "text", "jsonl", "csv", "tsv", "parquet"})
      .show_default();
  c.add_option("--skip-bad", options->corpus.skip_bad, "bad rows to leave out before it is an error")
      .non_negative()
      .show_default();
  c.add_flag("--force", options->force, "replace an existing dataset");
  c.add_flag("--json", *json, "one JSON record instead of text");
  c.on_run([=] { prepare(*options, *tokenizer, *json); });
}

void add_info(Command data) {
  struct Args {
    std::string folder, tokenizer;
    bool json = false, verify = false;
  };
  auto args = std::make_shared<Args>();
  Command c = data.add_command("info", "show what a dataset holds");
  c.add_option("DIR", args->folder, "prepared by ddl, or llm.c or nanoGPT shards").required();
  c.add_option("--tokenizer", args->tokenizer, "to show text, where the folder has no tokenizer");
  c.add_flag("--verify", args->verify, "compare every file with its hash in dataset.json");
  c.add_flag("--json", args->json, "one JSON record instead of text");
  c.on_run([args] {
    const Exec ex = default_exec();
    const Dataset dataset = Dataset::open(args->folder, ex);
    if (args->verify) dataset.verify_hashes(ex);
    const std::string path = args->tokenizer.empty() ? dataset.tokenizer_path() : args->tokenizer;
    const auto tokenizer = path.empty() ? nullptr : load_tokenizer(path);
    const Json description = describe_dataset(dataset, tokenizer.get(), ex);
    std::printf("%s\n", args->json ? to_line(description).c_str() : dataset_screen(description).c_str());
  });
}

void add_generate(Command data) {
  struct Args {
    Index documents = 10000;
    std::uint64_t seed = 0;
    std::string out = "-";
    OverwriteOptions overwrite;
    HopOptions hops;
    GroupOptions group;
    ReplaceOptions replace;
    AdditionOptions addition;
  };
  auto args = std::make_shared<Args>();
  Command c = data.add_command("generate", "write a corpus with known answers");
  c.require_command();
  const auto common = [&](Command kind) {
    kind.add_option("--docs", args->documents, "documents to write").non_negative().show_default();
    kind.add_option("--seed", args->seed, "other seeds, other documents").non_negative().show_default();
    kind.add_option("--out", args->out, "a .jsonl file, or - for standard output").show_default();
  };
  Command stories = c.add_command("stories", "short English stories in which things change, with questions");
  common(stories);
  stories.on_run([args] {
    write_generated(args->out, args->documents, default_exec(),
                    [&](Index i) { return generate_story(args->seed, i); });
  });
  Command overwrite = c.add_command("overwrite", "keys and values: a=3 b=7 a=5 a?5");
  common(overwrite);
  OverwriteOptions& o = args->overwrite;
  overwrite.add_option("--statements,--length", o.statements, "assignments and queries of an episode")
      .show_default();
  overwrite.add_option("--keys", o.keys, "different keys").show_default();
  overwrite.add_option("--values", o.values, "different values").show_default();
  overwrite.add_option("--overwrite-rate", o.overwrite_rate, "share of assignments that change a key's value")
      .show_default();
  overwrite.add_option("--query-rate", o.query_rate, "share of statements that ask").show_default();
  overwrite.on_run([args] {
    args->overwrite.check();
    write_generated(args->out, args->documents, default_exec(),
                    [&](Index i) { return generate_overwrite(args->overwrite, args->seed, i); });
  });

  Command hops = c.add_command("hops", "chase arrows: b>a a>c c>b 2a?b");
  common(hops);
  hops.add_option("--symbols", args->hops.symbols, "different symbols").show_default();
  hops.add_option("--min-hops", args->hops.min_hops, "fewest hops of a question").show_default();
  hops.add_option("--max-hops", args->hops.max_hops, "most hops of a question").show_default();
  hops.add_option("--questions", args->hops.questions, "questions of a document").show_default();
  hops.on_run([args] {
    args->hops.check();
    write_generated(args->out, args->documents, default_exec(),
                    [&](Index i) { return generate_hops(args->hops, args->seed, i); });
  });

  Command group = c.add_command("group", "products of permutations: cafb=f");
  common(group);
  group.add_option("--group", args->group.group, "s3 or s5: permutations of three or five points")
      .one_of({"s3", "s5"})
      .show_default();
  group.add_option("--min-length", args->group.min_length, "fewest factors").show_default();
  group.add_option("--max-length", args->group.max_length, "most factors").show_default();
  group.on_run([args] {
    args->group.check();
    write_generated(args->out, args->documents, default_exec(),
                    [&](Index i) { return generate_group(args->group, args->seed, i); });
  });

  Command replace =
      c.add_command("replace", "permutations given in the text, one after another: 1ab 2bc ... a?c");
  common(replace);
  replace.add_option("--symbols", args->replace.symbols, "different symbols").show_default();
  replace.add_option("--min-depth", args->replace.min_depth, "fewest permutations").show_default();
  replace.add_option("--max-depth", args->replace.max_depth, "most permutations").show_default();
  replace.add_option("--questions", args->replace.questions, "questions of a document").show_default();
  replace.on_run([args] {
    args->replace.check();
    write_generated(args->out, args->documents, default_exec(),
                    [&](Index i) { return generate_replace(args->replace, args->seed, i); });
  });

  Command addition = c.add_command("addition", "sums: 617+48=665");
  common(addition);
  addition.add_option("--min-digits", args->addition.min_digits, "fewest digits of a number").show_default();
  addition.add_option("--max-digits", args->addition.max_digits, "most digits of a number").show_default();
  addition.add_flag("--padded", args->addition.padded, "with zeros, so that every digit has its place");
  addition.on_run([args] {
    args->addition.check();
    write_generated(args->out, args->documents, default_exec(),
                    [&](Index i) { return generate_addition(args->addition, args->seed, i); });
  });
}

}  // namespace

void add_data_command(Command app) {
  Command data = app.add_command("data", "text to tokens: get, prepare, info, generate");
  data.require_command();
  add_get(data);
  add_prepare(data);
  add_info(data);
  add_generate(data);
}

}  // namespace ddl
