// All parameters of a model in one contiguous f32 array, with a table that says what lies where. Gradients,
// optimizer state and the bf16 copy use the same layout, so that one loop updates them all. For inference the large
// matrices may lie elsewhere, in a small format (model/packed_weights.h).
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
  enum Kind { kConstant, kNormal, kUniform, kTap, kOneElement } kind = kConstant;
  double value = 0;           // the constant, the standard deviation, or the largest magnitude
  std::string draws_as = "";  // "": the tensor's own name
  Index tap_from_end = 0;
  Index element = 0;  // one of each row (kOneElement), `step` further in every next row
  Index step = 0;
  double there = 0;  // its value

  static Init constant(double value) { return {kConstant, value}; }
  static Init normal(double std_dev) { return {kNormal, std_dev}; }
  static Init uniform(double bound) { return {kUniform, bound}; }  // in [-bound, bound)
  // [taps][...]: 0 but at the last tap, or at one before it.
  static Init last_tap(double value) { return {kTap, value}; }
  static Init tap(Index from_end, double value) { return {kTap, value, "", from_end}; }
  // `there` at one element, `value` elsewhere. identity: a matrix with ones on its diagonal.
  static Init one_element(Index element, double there, double value) {
    return {kOneElement, value, "", 0, element, 0, there};
  }
  static Init identity() { return {kOneElement, 0, "", 0, 0, 1, 1}; }
};

struct Param {
  std::string name;
  std::vector<Index> shape;  // as in memory, last contiguous
  Index offset = 0;          // in floats, from the start of the array
  Index count = 0;
  Init init;
  bool packed = false;  // not in the array: `offset` only names it
  bool joined = false;  // follows the one before without a gap
  // What it is; a tensor that is none of these is a vector or a short convolution.
  bool hidden_matrix = false, embedding = false, norm = false;
  // Weight decay applies: to matrices and the embedding, unless train.decay says otherwise
  bool decays = false;
  // mup scales its learning rate: that of hidden matrices, unless train.mup_rates does
  bool scaled_rate = false;
  bool updated_here = true;  // false: another rank has its optimizer's state (train.zero)
};

class ParamTable {
 public:
  // Adds a tensor and returns its offset. Tensors start on a cache line, except those added with `joined`,
  // which follow the one before without a gap, so that both are one matrix to a GEMM.
  enum Placement { kAligned, kJoined };
  // Which tensors the array has: all, or all but those of add_linear and add_embedding.
  enum class Matrices { kInArray, kPacked };
  explicit ParamTable(Matrices matrices = Matrices::kInArray) : matrices_(matrices) {}

  Index add(std::string name, std::vector<Index> shape, Init init, Placement placement = kAligned);
  // The same for the weight of a linear layer: decays, and scales with mup.
  Index add_matrix(std::string name, Index out, Index in, Init init, Placement placement = kAligned);
  // The same for the matrices that a pass multiplies with (model/native/pass.h): nearly all numbers of a model.
  Index add_linear(std::string name, Index out, Index in, Init init, Placement placement = kAligned);
  // The embedding: decays like a matrix, but keeps its learning rate under mup.
  Index add_embedding(std::string name, Index rows, Index width, Init init);
  // The weight of an RMSNorm, which starts at one and never decays.
  Index add_norm(std::string name, Index features);

  // The same table with other choices of what decays and whose rate mup scales.
  template <class Choose>
  ParamTable with_choices(const Choose& choose) const {
    ParamTable copy = *this;
    for (Param& p : copy.params_) choose(p);
    return copy;
  }

  const std::vector<Param>& list() const { return params_; }
  const Param& find(const std::string& name) const;  // must exist
  Index floats() const { return end_; }              // of the whole array, gaps included
  Index parameter_count() const;                     // without gaps

  // Fills the array (gaps with zero) with every tensor's starting values.
  void initialise(float* array, std::uint64_t seed, const Exec& ex) const;

 private:
  // Of a tensor that has just been added: moves it out of the array, if this table does that.
  Index pack_last();

  Matrices matrices_;
  std::vector<Param> params_;
  Index end_ = 0, packed_end_ = 0;
};

}  // namespace ddl
