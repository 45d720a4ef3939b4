// A model's weights in a folder as people share them: model.safetensors, or several files and
// model.safetensors.index.json that says which tensor is in which.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "model/model.h"

namespace ddl {

class WeightFolder {
 public:
  explicit WeightFolder(const std::string& folder);  // throws UserError where there are no weights

  std::vector<std::string> names() const;
  bool contains(std::string_view name) const { return file_of_.find(name) != file_of_.end(); }
  const TensorInfo& info(std::string_view name) const;  // throws UserError where there is none
  // As f32. Throws UserError naming file and tensor, what was expected and what was found.
  void read(std::string_view name, std::span<const Index> shape, float* out) const;

 private:
  const SafetensorsFile& file(std::string_view name) const;
  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
};

// The folder's tensors, under the names of this project, into the model. Throws UserError where one is
// missing, has another shape, or is not the model's.
void load_weights(Model& model, const std::string& folder, const Exec& ex);

}  // namespace ddl
