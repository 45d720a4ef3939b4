// Damages one file that the program reads, and runs a command that reads it: over and over, for a number of
// seconds. Whatever the file holds, the command must end with 0 or 2.
//   sabotage_mutate PROGRAM [SECONDS [SEED]]
// The same seed damages the same files in the same way. A file that broke the program is kept in the folder the
// attack was started in, as sabotage-N.
#include <algorithm>
#include <map>
#include <utility>

#include "compress.h"
#include "core/json.h"
#include "core/rng.h"
#include "io/sha256.h"
#include "process.h"

namespace sabotage {
namespace {

namespace fs = std::filesystem;
using ddl::Json;

// Numbers the random choices.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed, "sabotage mutate") {}
  std::uint64_t below(std::uint64_t n) { return random_.below(draw_++, n); }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  ddl::Random random_;
  std::uint64_t draw_ = 0;
};

std::string with_damaged_bytes(std::string text, Dice& dice) {
  static const std::vector<std::string> kPieces = {"\"",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   "-1",
                                                   "4294967296",
                                                   "18446744073709551616",
                                                   "1e999",
                                                   "null",
                                                   "\\u0000",
                                                   "\xff",
                                                   "\xf4\x90\x80\x80",
                                                   " ",
                                                   "\n",
                                                   "=",
                                                   "0",
                                                   std::string(1, '\0'),
                                                   std::string(8, '\xff'),
                                                   "nan",
                                                   "../"};
  for (std::uint64_t n = 1 + dice.below(4); n > 0; --n) {
    // Half of them in the first bytes, where headers are.
    const std::size_t end = dice.below(2) == 0 ? std::min<std::size_t>(text.size(), 200) : text.size();
    const std::size_t at = dice.below(end + 1);
    const std::size_t length = std::min<std::size_t>(dice.below(12), text.size() - at);
    switch (dice.below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, text.substr(dice.below(text.size() + 1), 1 + dice.below(200)));
        break;
      case 2:
        text.replace(at, length, dice.pick(kPieces));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(dice.below(256));
        break;
      case 4:
        text.replace(at, std::min<std::size_t>(8, text.size() - at),
                     std::string(8, static_cast<char>(dice.below(2) == 0 ? 0x7f : 0xff)));
        break;
      default:
        if (dice.below(4) == 0) text.resize(at);
    }
  }
  return text;
}

// All values of a document, itself included.
void collect(Json& json, std::vector<Json*>& found) {
  found.push_back(&json);
  if (json.is_structured())
    for (Json& inner : json) collect(inner, found);
}

Json odd_value(Dice& dice) {
  static const std::vector<Json> kOdd = {nullptr,
                                         true,
                                         0,
                                         -1,
                                         1,
                                         7,
                                         65536,
                                         2147483648,
                                         -9223372036854775807,
                                         18446744073709551615u,
                                         0.5,
                                         1e300,
                                         "",
                                         "x",
                                         "../x",
                                         std::string(3000, 'n'),
                                         std::string("a\0b", 3),
                                         Json::array(),
                                         Json::array({1, "x", nullptr}),
                                         Json::object(),
                                         {{"x", 1}}};
  return dice.pick(kOdd);
}

std::string with_damaged_value(const Json& whole, Dice& dice) {
  Json json = whole;
  for (std::uint64_t n = 1 + dice.below(2); n > 0; --n) {
    std::vector<Json*> values;
    collect(json, values);
    Json& value = *values[dice.below(values.size())];
    switch (dice.below(4)) {
      case 0:
        if (value.is_object() && !value.empty()) {
          auto member = value.begin();
          std::advance(member, static_cast<std::ptrdiff_t>(dice.below(value.size())));
          value.erase(member);
          break;
        }
        [[fallthrough]];
      case 1:
        if (value.is_array() && !value.empty()) {
          value.push_back(value[dice.below(value.size())]);
          break;
        }
        [[fallthrough]];
      default:
        value = odd_value(dice);
    }
  }
  return ddl::to_line(json);
}

// JSON is damaged by its values most of the time, and everything by its bytes. In JSON Lines one line is.
std::string damaged(const std::string& text, Dice& dice) {
  if (dice.below(3) > 0) {
    if (const Json json = ddl::parse_json(text); json.is_structured()) return with_damaged_value(json, dice);
    const std::size_t at = dice.below(text.size() + 1);
    const std::size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (const Json json = ddl::parse_json(std::string_view(text).substr(begin, end - begin));
        json.is_structured())
      return text.substr(0, begin) + with_damaged_value(json, dice) + text.substr(end);
  }
  // A safetensors file: the header with its length.
  if (text.size() > 10 && text[8] == '{' && dice.below(3) > 0) {
    std::uint64_t length = 0;
    std::copy_n(text.data(), sizeof length, reinterpret_cast<char*>(&length));
    if (length < text.size() - 8)
      if (const Json json = ddl::parse_json(std::string_view(text).substr(8, length)); json.is_object()) {
        const std::string header = with_damaged_value(json, dice);
        const std::uint64_t size = header.size();
        return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header +
               text.substr(8 + length);
      }
  }
  return with_damaged_bytes(text, dice);
}

// A file, and the commands that read it. Commands write only to out*, and to the run where it is resumed.
struct Target {
  std::string file;
  std::vector<Command> commands;
};

class Attack {
 public:
  explicit Attack(const Arguments& arguments)
      : program_(arguments.program), seconds_(arguments.seconds), dice_(arguments.seed) {
    prepare();
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      if (entry.is_regular_file()) whole_[entry.path().string()] = contents_of(entry.path().string());
  }

  int run() {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds_);
    std::map<int, int> exits;
    int tries = 0, broken = 0;
    while (Clock::now() < end) {
      // Each equally often
      const Target& target = targets_[static_cast<std::size_t>(tries) % targets_.size()];
      const std::string path = folder_ / target.file;
      const std::string text = damaged(whole_.at(path), dice_);
      write(path, text);
      if (dice_.below(4) > 0) agree_with_manifest(path, text);
      const Command& command = dice_.pick(target.commands);
      const Ending ending = program_.run(folder_.path(), command);
      ++tries;
      if (ending.how == Ending::How::kCode) ++exits[ending.number];
      if (ending.how != Ending::How::kCode || (ending.number != 0 && ending.number != 2)) {
        const std::string kept = "sabotage-" + std::to_string(++broken);
        write(fs::absolute(kept).string(), text);
        std::printf("%s, damaged (kept as %s): %s: %s\n%s\n", target.file.c_str(), kept.c_str(),
                    as_line(command).c_str(), ending.text().c_str(),
                    contents_of(folder_ / "printed").c_str());
      }
      restore();
    }
    std::printf("%d files damaged in %zu places of %.0f s: %d ended with 0, %d with 2, %d otherwise\n", tries,
                targets_.size(), seconds_, exits[0], exits[2], broken);
    return broken > 0 ? 1 : 0;
  }

 private:
  void prepare() {
    const std::string& at = folder_.path();
    const auto well = [&](const Command& command) { program_.run_well(at, command); };
    well({"data", "generate", "overwrite", "--docs", "60", "--statements", "12", "--keys", "3", "--out",
          "in.jsonl"});
    write(folder_ / "in.txt",
          "Some words here.\nAnd some words there, and some more words.\n\xff\xfe odd bytes\n");
    well({"tokenizer", "train", "in.jsonl", "--vocab", "280", "--out", "tokens"});
    make_other_tokenizers();
    well({"data", "prepare", "in.jsonl", "--tokenizer", "tokens", "--out", "set", "--val-fraction", "0.2"});
    well(train_command("set", "run", {"train.steps=2", "train.ema=0.9", "model.compressor=block"}));
    well({"export", "run", "--layout", "own", "--out", "model"});
    well({"export", "run", "--layout", "reference", "--out", "released"});
    make_indexed_model();
    write(folder_ / "config.toml",
          "preset = \"tiny\"\n[model]\nlayers = 2\nresidual = \"ddl-cc\"\n[train]\nlr = 0.001\nsteps = 3\n"
          "optimizer = \"muon\"\n[data]\norder = \"random\"\n[eval]\nevery = 2\n");
    write(folder_ / "task.toml",
          "task = \"own\"\nversion = 1\nvalidation_split = \"dev\"\ncontext = \"Q: {{q}}\\nA:\"\n"
          "choices = [\"{{a}}\", \"{{b}}\"]\nanswer = \"{{label}}\"\nmetrics = [\"acc\", \"acc_norm\"]\n");
    write(folder_ / "tasks/own/dev.jsonl",
          "{\"q\":\"one\",\"a\":\"x\",\"b\":\"y "
          "z\",\"label\":0}\n{\"q\":\"two\",\"a\":\"x\",\"b\":\"y\",\"label\":1}\n");
    write(
        folder_ / "tasks/piqa/validation.jsonl",
        "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\"}\n{\"goal\":\"h\",\"sol1\":\"a b\",\"sol2\":\"b\"}\n");
    write(folder_ / "tasks/piqa/validation-labels.lst", "0\n1\n");
    write(folder_ / "tasks/sciq/test.json",
          "[{\"question\":\"q\",\"distractor1\":\"a\",\"distractor2\":\"b\",\"distractor3\":\"c\","
          "\"correct_answer\":\"d\",\"support\":\"\"}]");
    const Command eval = {"eval", "model", "--data", "tasks", "--task-file", "task.toml"};
    well({"eval", "model", "--tasks", "piqa", "--data", "tasks", "--samples", "samples.jsonl"});

    write(folder_ / "in.csv",
          "id,text,note\n1,\"a, b\",x\n2,\"two\nlines and a \"\"quote\"\"\",\n3,plain words,y\n");
    write(folder_ / "in.tsv", "text\tid\none two\t1\nthree four\t2\n");
    write(folder_ / "in.txt.gz", ddl::gzip("Some words here, and some words there. "));
    write(folder_ / "ids.txt", "1 2 3 4 5 6 7 8\n");
    well(train_command("set", "plain", {"train.steps=1", "model.residual=baseline"}));
    well({"export", "plain", "--layout", "gguf", "--out", "plain.gguf"});
    well({"export", "plain", "--layout", "transformers", "--out", "hunyuan"});
    well({"export", "run", "--layout", "transformers", "--out", "python"});
    well({"quantize", "run", "--weights", "q4", "--out", "small"});
    well({"audit", "run", "--tokens", "200", "--out", "audited"});

    write(folder_ / "study.toml", kStudy);
    well(study_command("study"));
    const std::string record = "study/records/XS.baseline.tune.rate-0.004.scale-1.seed-1.json";
    well({"report", "run", "--out", "page.html", "--json", "page.json"});
    const Command report_study = {"report", "study", "--out", "page.html"};

    const Command resume = {"train", "--out", "run", "--resume", "--set", "train.steps=3"};
    const Command train = train_command("set", "out", {"train.steps=1"});
    const Command generate = {"generate", "model", "--prompt", "a=", "--max-new-tokens", "2"};
    const Command tasks = {"eval", "model", "--tasks", "piqa,sciq", "--data", "tasks"};
    const std::string step = "run/checkpoints/step-00000002/";
    const std::vector<Command> info_set = {
        {"data", "info", "set"}, {"data", "info", "set", "--verify"}, train};
    targets_ = {
        {"set/dataset.json",
         {{"data", "info", "set"},
          {"data", "info", "set", "--verify", "--json"},
          train,
          {"eval", "model", "--text", "set"},
          {"data", "prepare", "in.txt", "--tokenizer", "bytes", "--out", "set", "--force"}}},
        {"set/set_train_000001.bin", info_set},
        {"set/set_train_000001.answers", info_set},
        {"set/set_val_000001.bin", {{"data", "info", "set"}, {"eval", "model", "--text", "set"}, train}},
        {step + "trainer.json", {resume, {"info", "run"}, {"info", step, "--json"}}},
        {step + "manifest.json", {resume, {"info", "run"}, {"generate", "run", "--prompt", "a"}}},
        {step + "config.json", {resume, {"info", "run"}, {"generate", "run", "--prompt", "a"}}},
        {step + "optimizer.safetensors", {resume}},
        {step + "model.safetensors", {resume, {"export", "run", "--out", "out"}}},
        {step + "average.safetensors", {resume, {"generate", "run", "--prompt", "a"}}},
        {"run/config.toml", {resume, {"info", "run"}}},
        {"run/run.json", {resume, {"info", "run"}}},
        {"run/metrics.jsonl",
         {resume,
          {"info", "run"},
          {"info", "run", "--json"},
          {"metrics", "run"},
          {"metrics", "run", "--csv"},
          {"report", "run", "--out", "page.html"}}},
        {"model/config.json", {generate, {"info", "model"}, {"eval", "model", "--text", "in.txt"}}},
        {"model/model.safetensors", {generate, {"info", "model"}, {"export", "model", "--out", "out"}}},
        {"model/tokenizer.json", {generate, {"info", "model"}, {"eval", "model", "--text", "in.txt"}}},
        {"released/config.json", {{"info", "released"}, {"import", "released", "--out", "out"}}},
        {"released/model.safetensors", {{"info", "released"}, {"import", "released", "--out", "out"}}},
        {"indexed/model.safetensors.index.json",
         {{"info", "indexed"}, {"generate", "indexed", "--prompt", "a"}}},
        {"tokens/tokenizer.json",
         {{"tokenizer", "info", "tokens"},
          {"tokenizer", "encode", "tokens", "some text"},
          {"data", "prepare", "in.txt", "--tokenizer", "tokens", "--out", "out"}}},
        {"tokens/tokenizer_config.json", {{"tokenizer", "info", "tokens"}}},
        {"pair/vocab.json", {{"tokenizer", "info", "pair"}, {"tokenizer", "encode", "pair", "some text"}}},
        {"pair/merges.txt", {{"tokenizer", "info", "pair"}, {"tokenizer", "encode", "pair", "some text"}}},
        {"ranks/x.tiktoken", {{"tokenizer", "info", "ranks"}, {"tokenizer", "encode", "ranks", "some text"}}},
        {"config.toml", {{"train", "config.toml", "--options"}}},
        {"task.toml", {eval}},
        {"tasks/own/dev.jsonl",
         {eval, {"eval", "model", "--data", "tasks", "--task-file", "task.toml", "--strict"}}},
        {"tasks/piqa/validation.jsonl", {tasks}},
        {"tasks/piqa/validation-labels.lst", {tasks}},
        {"tasks/sciq/test.json",
         {tasks, {"eval", "model", "--tasks", "sciq", "--shots", "1", "--data", "tasks"}}},
        {"samples.jsonl",
         {{"eval", "model", "--tasks", "piqa", "--data", "tasks", "--samples", "samples.jsonl"}}},
        {"in.jsonl",
         {{"data", "prepare", "in.jsonl", "--tokenizer", "bytes", "--out", "out", "--skip-bad", "3"},
          {"tokenizer", "train", "in.jsonl", "--vocab", "270", "--out", "out"},
          {"eval", "model", "--text", "in.jsonl"}}},
        {"study/study.toml", {report_study}},
        {record, {report_study, study_command("study")}},
        {"in.csv",
         {{"data", "prepare", "in.csv", "--tokenizer", "bytes", "--out", "out"},
          {"data", "prepare", "in.csv", "--tokenizer", "bytes", "--out", "out", "--field", "note"},
          {"eval", "model", "--text", "in.csv", "--skip-bad", "2"}}},
        {"in.tsv", {{"data", "prepare", "in.tsv", "--tokenizer", "bytes", "--out", "out"}}},
        {"in.txt.gz",
         {{"data", "prepare", "in.txt.gz", "--tokenizer", "bytes", "--out", "out"},
          {"tokenizer", "train", "in.txt.gz", "--vocab", "270", "--out", "out"}}},
        {"ids.txt", {{"score", "model", "--tokens", "ids.txt", "--gates"}}},
        {"plain.gguf", {{"import", "plain.gguf", "--out", "out"}}},
        {"hunyuan/config.json", {{"import", "hunyuan", "--out", "out"}, {"info", "hunyuan"}}},
        {"hunyuan/model.safetensors", {{"import", "hunyuan", "--out", "out"}}},
        {"python/config.json", {{"import", "python", "--out", "out"}, {"info", "python"}}},
        {"python/model.safetensors", {{"import", "python", "--out", "out"}}},
        {"small/config.json", {{"score", "small", "--text", "in.txt"}, {"info", "small"}}},
        {"small/model.safetensors", {{"generate", "small", "--prompt", "a", "--max-new-tokens", "2"}}},
        {"audited/audit.json", {{"report", "audited/audit.json", "--out", "page.html"}}},
        {"page.json", {{"report", "page.json", "--out", "page.html"}}},
        {"in.txt",
         {{"data", "prepare", "in.txt", "--tokenizer", "tokens", "--out", "out"},
          {"eval", "model", "--text", "in.txt"}}},
    };
  }

  // The trained tokenizer in the other forms that are read.
  void make_other_tokenizers() {
    const Json json = ddl::parse_json(contents_of(folder_ / "tokens/tokenizer.json"));
    write(folder_ / "pair/vocab.json", ddl::to_line(json.at("model").at("vocab")));
    std::string merges = "#version: 0.2\n";
    for (const Json& merge : json.at("model").at("merges"))
      merges += (merge.is_string() ? merge.get<std::string>()
                                   : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>()) +
                "\n";
    write(folder_ / "pair/merges.txt", merges);
    static constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string ranks;
    for (unsigned byte = 0; byte < 256; ++byte)
      ranks +=
          std::string{kDigits[byte >> 2], kDigits[(byte & 3) << 4]} + "== " + std::to_string(byte) + "\n";
    write(folder_ / "ranks/x.tiktoken", ranks);
  }

  void make_indexed_model() {
    fs::copy(folder_ / "model", folder_ / "indexed");
    fs::rename(folder_ / "indexed/model.safetensors", folder_ / "indexed/part.safetensors");
    const std::string file = contents_of(folder_ / "indexed/part.safetensors");
    std::uint64_t length = 0;
    std::copy_n(file.data(), sizeof length, reinterpret_cast<char*>(&length));
    Json map = Json::object();
    const Json header = ddl::parse_json(std::string_view(file).substr(8, length));
    for (const auto& [name, entry] : header.items())
      if (name != "__metadata__") map[name] = "part.safetensors";
    write(folder_ / "indexed/model.safetensors.index.json", ddl::to_text(Json{{"weight_map", map}}));
  }

  // A checkpoint's manifest notices every change; with the new hash in it, the readers behind it see the file.
  void agree_with_manifest(const std::string& path, const std::string& text) {
    const std::string manifest = fs::path(path).parent_path().string() + "/manifest.json";
    if (path == manifest || !whole_.contains(manifest)) return;
    Json json = ddl::parse_json(whole_.at(manifest));
    json["files"][fs::path(path).filename().string()] =
        Json{{"bytes", text.size()}, {"sha256", ddl::sha256_hex(text)}};
    write(manifest, ddl::to_text(json));
  }

  // Everything as it was: what commands wrote goes, what they changed comes back.
  void restore() {
    std::vector<std::string> others;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
      if (!entry.is_directory() && !whole_.contains(entry.path().string()))
        others.push_back(entry.path().string());
    for (const std::string& path : others) fs::remove(path);
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (entry.path().filename().string().starts_with("out")) fs::remove_all(entry.path());
    fs::remove_all(folder_ / "run/checkpoints/step-00000003");
    for (const auto& [path, text] : whole_)
      if (!fs::exists(path) || contents_of(path) != text) write(path, text);
    for (const auto& entry : fs::directory_iterator(folder_ / "run/checkpoints"))
      if (entry.path().filename() != "step-00000002") fs::remove_all(entry.path());
  }

  Folder folder_;
  Program program_;
  double seconds_;
  Dice dice_;
  std::vector<Target> targets_;
  std::map<std::string, std::string> whole_;  // every file, undamaged
};

}  // namespace
}  // namespace sabotage

int main(int argc, char** argv) {
  try {
    return sabotage::Attack(sabotage::Arguments::parse(argc, argv)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the attack itself failed: %s\n", error.what());
    return 1;
  }
}
