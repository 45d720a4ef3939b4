// A model's weights in a folder as people share them: model.safetensors, or several files and
// model.safetensors.index.json that says which tensor is in which. Where a checkpoint has the average of its
// weights too (train.ema), the average: it is what the run's validation measured.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "model/weights.h"

namespace ddl {

// The files that an index names. Throws UserError where one would lead out of the folder.
std::set<std::string> parse_weight_index(std::string_view text, const std::string& source_name);

class WeightFolder {
 public:
  explicit WeightFolder(const std::string& folder);  // throws UserError where there are no weights

  std::vector<std::string> names() const;
  bool contains(std::string_view name) const { return file_of_.find(name) != file_of_.end(); }
  // All of these throw UserError naming file and tensor, what was expected and what was found.
  const std::string& path_of(std::string_view name) const { return file(name).path(); }
  const TensorInfo& info(std::string_view name) const { return *file(name).find(name); }
  void expect(std::string_view name, std::span<const Index> shape) const;
  void read(std::string_view name, std::span<const Index> shape, float* out) const;  // as f32
  void expect_bytes(std::string_view name, std::string_view dtype, std::span<const Index> shape) const;
  void read_bytes(std::string_view name, std::string_view dtype, std::span<const Index> shape,
                  void* out) const;

 private:
  const SafetensorsFile& file(std::string_view name) const;
  std::string source_;  // the one file, or the index
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;
};

// Whether the tensors are those of `table`, under this project's names: throws UserError where one is
// missing, has another shape, or is not in the table.
void check_weights(const ParamTable& table, const WeightFolder& weights);
void load_weights(Weights& weights, const WeightFolder& folder, const Exec& ex);

}  // namespace ddl
