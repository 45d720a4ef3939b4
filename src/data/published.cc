#include "data/published.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/options.h"
#include "core/record.h"
#include "io/file.h"
#include "io/sha256.h"

namespace ddl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenize = "./ddl data prepare {0} --tokenizer TOKENIZER --out data/NAME";
constexpr const char* kEvaluate = "./ddl eval RUN --tasks NAMES --data {0}";

PublishedSet arc(const std::string& name, const std::string& kind) {
  // One archive for both; most of it is a corpus of science texts that is not used here.
  const std::string inside = "ARC-V1-Feb2018-2/ARC-" + kind + "/ARC-" + kind;
  return {
      name,
      "ARC-" + kind + ", grade-school science questions (evaluation task)",
      "CC BY-SA 4.0",
      "https://allenai.org/data/arc",
      "tasks",
      {{"https://ai2-public-datasets.s3.amazonaws.com/arc/ARC-V1-Feb2018.zip",
        "ARC-V1-Feb2018.zip",
        680841265,
        "6d2d5ab50b2ceec6ba5f79c921be77cf2de712ea25a2b3f4fff3acc101cecfa0",
        {{inside + "-Test.jsonl", name + "/test.jsonl"}, {inside + "-Train.jsonl", name + "/train.jsonl"}}}},
      kEvaluate};
}

std::vector<PublishedSet> all_sets() {
  const std::string github = "https://raw.githubusercontent.com/", face = "https://huggingface.co/datasets/",
                    openai = "https://openaipublic.blob.core.windows.net/gpt-2/",
                    ai2 = "https://ai2-public-datasets.s3.amazonaws.com/",
                    mosaic = "https://storage.googleapis.com/ai2-mosaic/public/",
                    bisk = "https://yonatanbisk.com/piqa/data/";
  return {
      {"shakespeare",
       "1.1 MB of Shakespeare's plays in one file (tinyshakespeare)",
       "public domain",
       "https://github.com/karpathy/char-rnn",
       "corpora/shakespeare",
       {{github + "karpathy/char-rnn/master/data/tinyshakespeare/input.txt", "input.txt", 1115394,
         "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"}},
       "./ddl tokenizer train {0} --vocab 4096 --out tokenizer, then ./ddl data prepare {0} --tokenizer "
       "tokenizer "
       "--out data/shakespeare"},
      {"tinystories",
       "short stories in simple English, written by GPT-4 (TinyStoriesV2)",
       "CDLA-Sharing-1.0",
       face + "roneneldan/TinyStories",
       "corpora/tinystories",
       {{face + "roneneldan/TinyStories/resolve/main/TinyStoriesV2-GPT4-train.txt", "train.txt", 2227753162,
         "6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443"},
        {face + "roneneldan/TinyStories/resolve/main/TinyStoriesV2-GPT4-valid.txt", "valid.txt", 22502601,
         "6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d"}},
       "./ddl data prepare {0}/train.txt --val {0}/valid.txt --separator '<|endoftext|>' --tokenizer "
       "TOKENIZER "
       "--out data/tinystories"},
      {"fineweb-edu",
       "educational web pages, one of the 14 files of the 10-billion-token sample (Parquet)",
       "ODC-By 1.0",
       face + "HuggingFaceFW/fineweb-edu",
       "corpora/fineweb-edu",
       {{face + "HuggingFaceFW/fineweb-edu/resolve/main/sample/10BT/000_00000.parquet", "000_00000.parquet",
         2150000000}},
       kTokenize},
      {"gpt2",
       "GPT-2's tokenizer",
       "MIT (modified)",
       "https://github.com/openai/gpt-2",
       "tokenizers/gpt2",
       {{openai + "encodings/main/encoder.json", "encoder.json", 1042301,
         "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"},
        {openai + "encodings/main/vocab.bpe", "vocab.bpe", 456318,
         "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"}},
       "./ddl data prepare INPUT --tokenizer {0} --out data/NAME"},
      arc("arc_easy", "Easy"),
      arc("arc_challenge", "Challenge"),
      {"hellaswag",
       "which ending fits (evaluation task)",
       "MIT",
       "https://github.com/rowanz/hellaswag",
       "tasks",
       {{github + "rowanz/hellaswag/master/data/hellaswag_val.jsonl", "hellaswag/validation.jsonl", 12246618,
         "0aa3b88843990f3f10a97b9575c94d7b71fb2205240ba04ae4884d9e9c992588"},
        {github + "rowanz/hellaswag/master/data/hellaswag_train.jsonl", "hellaswag/train.jsonl", 47496131,
         "dae5e69249868cb9fe4e23ff925c60b66169564cfb7072d793cd7356a2b69f8d"}},
       kEvaluate},
      {"openbookqa",
       "elementary science questions (evaluation task)",
       "",
       "https://allenai.org/data/open-book-qa",
       "tasks",
       {{ai2 + "open-book-qa/OpenBookQA-V1-Sep2018.zip",
         "openbookqa.zip",
         1446098,
         "82368cf05df2e3b309c17d162e10b888b4d768fad6e171e0a041954c8553be46",
         {{"OpenBookQA-V1-Sep2018/Data/Main/test.jsonl", "openbookqa/test.jsonl"},
          {"OpenBookQA-V1-Sep2018/Data/Main/train.jsonl", "openbookqa/train.jsonl"}}}},
       kEvaluate},
      {"piqa",
       "everyday physical reasoning (evaluation task)",
       "",
       "https://yonatanbisk.com/piqa",
       "tasks",
       {{bisk + "valid.jsonl", "piqa/valid.jsonl", 495929,
         "93503cc97c679e459b065c3d13e848282e44b2a25213985bed3e5d458abef72d"},
        {bisk + "valid-labels.lst", "piqa/valid-labels.lst", 3676,
         "b4192dc3a2a0363d9d60ccf79800cbbe2f32ebb17726efdde6970e0b8131bceb"},
        {bisk + "train.jsonl", "piqa/train.jsonl", 4400000},
        {bisk + "train-labels.lst", "piqa/train-labels.lst", 32226}},
       kEvaluate},
      {"sciq",
       "crowdsourced science questions (evaluation task)",
       "CC BY-NC 3.0",
       "https://allenai.org/data/sciq",
       "tasks",
       {{ai2 + "sciq/SciQ.zip",
         "sciq.zip",
         2821345,
         "7f3312f6ac6b09970b32942d106a8c44ec0dad46a0369f17d635aff8e348a87c",
         {{"SciQ dataset-2 3/test.json", "sciq/test.json"},
          {"SciQ dataset-2 3/train.json", "sciq/train.json"}}}},
       kEvaluate},
      {"social_iqa",
       "what people do and feel (evaluation task)",
       "",
       "https://leaderboard.allenai.org/socialiqa",
       "tasks",
       {{mosaic + "socialiqa/socialiqa-train-dev.zip",
         "social_iqa.zip",
         2198056,
         "ee073914a0fc33265cfbcfc50ec20df9b2e07809c3f420f599138d1f394ef5c3",
         {{"socialiqa-train-dev/dev.jsonl", "social_iqa/dev.jsonl"},
          {"socialiqa-train-dev/dev-labels.lst", "social_iqa/dev-labels.lst"},
          {"socialiqa-train-dev/train.jsonl", "social_iqa/train.jsonl"},
          {"socialiqa-train-dev/train-labels.lst", "social_iqa/train-labels.lst"}}}},
       kEvaluate},
      {"winogrande",
       "which of two a pronoun means (evaluation task)",
       "CC BY",
       "https://github.com/allenai/winogrande",
       "tasks",
       {{mosaic + "winogrande/winogrande_1.1.zip",
         "winogrande.zip",
         3400000,
         "",  // the archive has been replaced more than once under this name
         {{"winogrande_1.1/dev.jsonl", "winogrande/dev.jsonl"},
          {"winogrande_1.1/train_xl.jsonl", "winogrande/train_xl.jsonl"}}}},
       kEvaluate},
      {"lambada_openai",
       "the last word of a passage, OpenAI's version (evaluation task)",
       "MIT (modified)",
       face + "EleutherAI/lambada_openai",
       "tasks",
       {{openai + "data/lambada_test.jsonl", "lambada_openai/test.jsonl", 1819752,
         "4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226"}},
       kEvaluate},
  };
}

std::string mirrored(const std::string& url) {
  const char* const mirror = std::getenv("DDL_DATA_MIRROR");
  constexpr std::string_view kScheme = "https:/";
  return mirror && *mirror && url.starts_with(kScheme) ? mirror + url.substr(kScheme.size()) : url;
}

// Runs a tool found on the PATH with its output on standard error, or in the file `out`. The exit code; 127 where
// there is no such tool.
int run_tool(const std::vector<std::string>& words, const std::string& out = "") {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw UserError("{}: cannot be started", words.front());
  if (child == 0) {
    const int file = out.empty() ? 2 : ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || ::dup2(file, 1) < 0) ::_exit(126);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// What is wrong with a file that is there: "" where nothing is.
std::string difference(const std::string& path, const PublishedFile& file) {
  const std::uint64_t bytes = fs::file_size(path);
  if (file.bytes > 0 && !file.sha256.empty() && bytes != file.bytes)
    return fmt::format("expected {} bytes, found {}", file.bytes, bytes);
  if (file.sha256.empty()) return "";
  const std::string found = sha256_file(path);
  return found == file.sha256 ? "" : fmt::format("expected the SHA-256 {}, found {}", file.sha256, found);
}

std::vector<std::string> final_paths(const PublishedFile& file) {
  std::vector<std::string> paths;
  for (const PublishedFile::Member& member : file.members) paths.push_back(member.path);
  if (paths.empty()) paths.push_back(file.path);
  return paths;
}

void download(const std::string& url, const std::string& to, const std::string& place) {
  int code =
      run_tool({"curl", "--fail", "--location", "--retry", "3", "--continue-at", "-", "--output", to, url});
  if (code == 127) code = run_tool({"wget", "--continue", "--output-document=" + to, url});
  if (code == 0) return;
  throw UserError(
      "{}: {}. What came so far is kept, and the same command continues. Without a network here, fetch the "
      "file "
      "elsewhere, put it at {}, and run the command again to check it",
      url,
      code == 127 ? "needs curl or wget, and neither is installed"
                  : fmt::format("not downloaded (exit code {})", code),
      place);
}

void take_apart(const PublishedFile& file, const std::string& archive, const std::string& folder) {
  for (const PublishedFile::Member& member : file.members) {
    const std::string path = folder + "/" + member.path, partial = path + ".part";
    make_folders(parent_folder(path));
    const int code = run_tool({"unzip", "-p", archive, member.name}, partial);
    if (code == 127)
      throw UserError("{}: to take it apart, install unzip and run the command again", archive);
    if (code != 0)
      throw UserError("{}: no {} came out of it (unzip's exit code {}); remove it and run the command again",
                      archive, member.name, code);
    rename_path(partial, path);
  }
}

}  // namespace

std::uint64_t PublishedSet::bytes() const {
  std::uint64_t sum = 0;
  for (const PublishedFile& file : files) sum += file.bytes;
  return sum;
}

std::string PublishedSet::terms() const { return licence.empty() ? "see " + home : licence; }

const std::vector<PublishedSet>& published_sets() {
  static const std::vector<PublishedSet> sets = all_sets();
  return sets;
}

std::vector<PublishedSet> find_published(const std::string& name) {
  std::vector<PublishedSet> found;
  std::vector<std::string> names = {"tasks"};
  for (const PublishedSet& set : published_sets()) {
    if (set.name == name || (name == "tasks" && set.folder == "tasks")) found.push_back(set);
    names.push_back(set.name);
  }
  if (found.empty())
    throw UserError("no published data '{}'; did you mean {}? `./ddl data get` lists them", name,
                    nearest(name, names));
  return found;
}

Json check_published(const PublishedSet& set, const std::string& folder) {
  Json record = make_record("published");
  record["name"] = set.name, record["what"] = set.what, record["licence"] = set.terms(),
  record["home"] = set.home;
  record["folder"] = folder;
  record["files"] = Json::array();
  for (const PublishedFile& file : set.files)
    for (const std::string& path : final_paths(file)) {
      Json entry{{"path", folder + "/" + path}, {"url", file.url}};
      const bool plain = file.members.empty();
      if (!fs::is_regular_file(folder + "/" + path)) {
        entry["status"] = "absent";
      } else if (const std::string wrong = plain ? difference(folder + "/" + path, file) : "";
                 !wrong.empty()) {
        entry["status"] = "differs", entry["difference"] = wrong;
      } else {
        entry["status"] = plain && !file.sha256.empty() ? "there, hash matches" : "there";
      }
      record["files"].push_back(std::move(entry));
    }
  return record;
}

void fetch_published(const PublishedSet& set, const std::string& folder, std::FILE* progress) {
  for (const PublishedFile& file : set.files) {
    const std::vector<std::string> paths = final_paths(file);
    const bool there = std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
      return fs::is_regular_file(folder + "/" + path);
    });
    const std::string place = folder + "/" + file.path, partial = place + ".part";
    if (there) {
      const std::string wrong = file.members.empty() ? difference(place, file) : "";
      if (!wrong.empty())
        throw UserError("{}: {}. It is left as it is; move it away to download it again", place, wrong);
      continue;
    }
    make_folders(parent_folder(place));
    if (!fs::is_regular_file(place)) {  // an archive may have been put there by hand
      std::error_code error;
      const std::uint64_t have = fs::file_size(partial, error);
      const bool whole = !error && !file.sha256.empty() && have == file.bytes;  // sizes alone may be rounded
      if (progress && !whole) fmt::print(progress, "{} -> {}\n", mirrored(file.url), place);
      if (!whole) download(mirrored(file.url), partial, place);
      if (const std::string wrong = difference(partial, file); !wrong.empty()) {
        remove_all(partial);
        throw UserError("{}: {}; the download was removed", mirrored(file.url), wrong);
      }
      rename_path(partial, place);
    }
    if (file.members.empty()) continue;
    if (const std::string wrong = difference(place, file); !wrong.empty())
      throw UserError("{}: {}", place, wrong);
    take_apart(file, place, folder);
    // ARC's two tasks share one archive: it goes when both have been taken out.
    bool wanted = false;
    for (const PublishedSet& other : published_sets())
      for (const PublishedFile& same : other.files)
        if (same.url == file.url && other.name != set.name)
          for (const std::string& path : final_paths(same)) wanted |= !fs::exists(folder + "/" + path);
    if (!wanted) remove_all(place);
  }
}

}  // namespace ddl
