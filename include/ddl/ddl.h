// Deep Delta as a library: load a trained model, generate, score, train. This header is all there is; it needs
// nothing but the standard library.
//
//   #include <ddl/ddl.h>
//   ddl::Model model("runs/stories");
//   std::puts(model.generate("Once upon a time").text.c_str());
//
// Link ddl::ddl (find_package(ddl)). Everything throws ddl::Error with a sentence that says what was expected,
// what was found and what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ddl {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string version();

struct LoadSettings {
  std::string precision = "";  // "f32" or "bf16"; "" as it was trained
  std::string engine = "";     // "native" or "reference"; "" the native one
  std::string weights = "";    // "f32", "bf16", "q8" or "q4" (docs/small-weights.md); "" as they are stored
  std::string tokenizer = "";  // a path or a name, where the model's folder has none
  int threads = 0;             // 0: a thread per core
};

struct GenerateSettings {
  std::int64_t max_new_tokens = 256;
  double temperature = 0.8;  // 0: always the most likely token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  std::uint64_t seed = 0;  // the same seed gives the same text
  std::vector<std::string> stop = {};
};

struct GeneratedText {
  std::string text;   // what follows the prompt, valid UTF-8
  std::string ended;  // "length", "end of text", "stop string" or "context"
  std::int64_t prompt_tokens = 0, new_tokens = 0;
};

struct TokenScore {
  std::int32_t token = 0;
  double log_probability = 0;  // given all tokens before it
  bool most_likely = false;    // no other token is more likely
};

// A trained model: from a run, a checkpoint, or a folder with config.json, weights and tokenizer.json.
class Model {
 public:
  explicit Model(const std::string& path, const LoadSettings& settings = {});
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  std::string residual() const;  // the residual rule, for example "ddl-cc"
  std::int64_t parameters() const;
  std::int64_t vocabulary() const;
  std::int64_t context() const;  // longest sequence in tokens

  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(const std::vector<std::int32_t>& tokens) const;

  // `on_text` hears each piece as soon as it is there.
  GeneratedText generate(std::string_view prompt, const GenerateSettings& settings = {},
                         const std::function<void(std::string_view piece)>& on_text = {}) const;
  // Every token of the text as a document's beginning. Throws where it is longer than the context.
  std::vector<TokenScore> score(std::string_view text) const;
  std::vector<TokenScore> score_tokens(const std::vector<std::int32_t>& tokens) const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

struct TrainSettings {
  std::string data;                   // a dataset made by `ddl data prepare`
  std::string out;                    // the run's folder
  std::string config;                 // a TOML file; "" for the defaults
  std::string preset;                 // "tiny", "mini", "small", "medium", or "" for the default
  std::vector<std::string> set = {};  // "train.steps=100", as --set of the program
  bool resume = false;
  int threads = 0;
};

struct TrainedRun {
  std::string folder;  // ready for Model
  std::int64_t steps = 0;
  bool finished = false;  // false: a signal stopped it, and it was saved
};

// Trains as `ddl train` does, checkpoints included, without printing. `on_record` hears each record as a line of
// JSON (docs/training.md lists them). SIGINT and SIGTERM stop it between two steps while it runs.
TrainedRun train_model(const TrainSettings& settings,
                       const std::function<void(std::string_view record)>& on_record = {});

}  // namespace ddl
