// All parameters of a model in one contiguous f32 array, with a table that says what lies where. Gradients,
// optimizer state and the bf16 copy use the same layout, so that one loop updates them all.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "core/exec.h"
#include "core/index.h"

namespace ddl {

// How a tensor starts. Draws are a function of (seed, the tensor's name), so models that share a tensor share
// its starting values, whatever else they have. A tensor may draw under another one's name.
struct Init {
  enum Kind { kConstant, kNormal, kLastTap, kOneElement } kind = kConstant;
  double value = 0;           // the constant, or the standard deviation
  std::string draws_as = "";  // "": the tensor's own name
  Index element = 0;          // one of each row (kOneElement), `step` further in every next row
  Index step = 0;
  double there = 0;           // its value

  static Init constant(double value) { return {kConstant, value, ""}; }
  static Init normal(double std_dev) { return {kNormal, std_dev, ""}; }
  static Init last_tap(double value) { return {kLastTap, value, ""}; }  // [taps][...]: 0 but at the last tap
  // `there` at one element, `value` elsewhere. identity: a matrix with ones on its diagonal.
  static Init one_element(Index element, double there, double value) {
    return {kOneElement, value, "", element, 0, there};
  }
  static Init identity() { return {kOneElement, 0, "", 0, 1, 1}; }
};

struct Param {
  std::string name;
  std::vector<Index> shape;  // as in memory, last contiguous
  Index offset = 0;          // in floats, from the start of the array
  Index count = 0;
  Init init;
  bool hidden_matrix = false;  // mup scales its learning rate
  bool decays = false;         // weight decay applies (matrices and the embedding)
};

class ParamTable {
 public:
  // Adds a tensor and returns its offset. Tensors start on a cache line, except those added with `joined`,
  // which follow the one before without a gap, so that both are one matrix to a GEMM.
  enum Placement { kAligned, kJoined };
  Index add(std::string name, std::vector<Index> shape, Init init, Placement placement = kAligned);
  // The same for the weight of a linear layer: decays, and scales with mup.
  Index add_matrix(std::string name, Index out, Index in, Init init, Placement placement = kAligned);
  // The embedding: decays like a matrix, but keeps its learning rate under mup.
  Index add_embedding(std::string name, Index rows, Index width, Init init);

  const std::vector<Param>& list() const { return params_; }
  const Param& find(const std::string& name) const;  // must exist
  Index floats() const { return end_; }              // of the whole array, gaps included
  Index parameter_count() const;                     // without gaps

  // Fills the array (gaps with zero) with every tensor's starting values.
  void initialise(float* array, std::uint64_t seed, const Exec& ex) const;

 private:
  std::vector<Param> params_;
  Index end_ = 0;
};

}  // namespace ddl
