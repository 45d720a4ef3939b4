// Any bytes as a model's config.json, or as the index of its shards: a UserError, or a configuration that can
// be planned and written out again. The first byte chooses: 'o' this program's, 'r' the paper's released one,
// beside fixed weights, 'i' the index.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fuzz/driver.h"
#include "model/config_json.h"
#include "model/plan.h"
#include "model/reference_layout.h"

namespace {

ddl::ModelConfig small_model() {
  ddl::ModelConfig config;
  config.layers = 1, config.width = 8, config.heads = 2, config.vocab = 11, config.context = 16;
  config.set("model.compressor=block");
  return config;
}

// The tensors that go with the seed of the released configuration; gone when the program ends.
class Released {
 public:
  Released() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ddl_fuzz_XXXXXX").string();
    if (!::mkdtemp(pattern.data())) std::abort();
    folder_ = pattern;
    const ddl::Weights weights(small_model(), 1, ddl::Exec{});
    const ddl::ReferenceModel reference = ddl::to_reference(weights);
    ddl::write_safetensors(folder_ + "/model.safetensors", reference.tensors, {});
    config = reference.config.dump();
  }
  ~Released() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ddl::WeightFolder weights() const { return ddl::WeightFolder(folder_); }
  std::string config;

 private:
  std::string folder_;
};

const Released& released() {
  static const Released it;
  return it;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {"o" + ddl::model_config_json(small_model()).dump(), "r" + released().config,
          R"(i{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"x"}})"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] == 'i') {
      for (const std::string& name : ddl::parse_weight_index(text, "index.json"))
        if (name.empty() || name.find('/') != std::string::npos) std::abort();
      return 0;
    }
    static const ddl::WeightFolder weights = released().weights();
    const ddl::ModelConfig config = data[0] == 'r' ? ddl::from_reference_config(text, "config.json", weights)
                                                   : ddl::parse_model_config(text, "config.json");
    const std::string again = ddl::model_config_json(config).dump();
    if (ddl::model_config_json(ddl::parse_model_config(again, "again")).dump() != again) std::abort();
    ddl::plan_model(config, {1, 1});
  } catch (const ddl::UserError&) {
  }
  return 0;
}
