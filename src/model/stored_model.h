// A model as it lies in a folder: config.json and safetensors, under this project's names, under those of the paper's
// released code, or under those of Hugging Face transformers (the baseline as HunYuan).
#pragma once

#include <string>

#include "model/weight_folder.h"
#include "model/weights.h"

namespace ddl {

// Throws UserError where `path` is no folder.
void expect_model_folder(const std::string& path);
// The folder with the weights: `path` itself, or the newest valid checkpoint of the run it is. What belongs
// to the model is checked against the manifest where there is one. Throws UserError saying what was looked
// for.
std::string find_model_folder(const std::string& path);

enum class StoredLayout {
  kOwn,
  kReleased,      // the paper's released code
  kTransformers,  // this project's names, next to a modeling file for transformers
  kHunyuan        // the baseline as transformers knows it
};

class StoredModel {
 public:
  // Reads the configuration and the headers, and holds every tensor's shape against the configuration, so
  // that nothing is allocated for a file that cannot fill it. Throws UserError.
  explicit StoredModel(const std::string& path);

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  StoredLayout layout() const { return layout_; }
  WeightFormat format() const { return format_; }  // of the files; ddl quantize writes others than f32

  // Into weights of this configuration, or of one that differs only in how it computes, in any format. Weights
  // that are stored in a small one stay what they are.
  void load(Weights& weights, const Exec& ex) const;

 private:
  std::string folder_;
  WeightFolder weights_;
  StoredLayout layout_ = StoredLayout::kOwn;
  WeightFormat format_ = WeightFormat::kF32;
  ModelConfig config_;
};

}  // namespace ddl
