#include "model/packed_folder.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "core/bf16.h"
#include "core/error.h"

namespace ddl {
namespace {

// A matrix as it is stored.
struct StoredMatrix {
  std::string codes, scales;  // names; no scales: `codes` are the numbers
  const char* dtype = "BF16";
  std::vector<Index> code_shape, scale_shape;
  bool has_scales = false, two_to_a_byte = false;

  StoredMatrix(const Param& p, WeightFormat format) {
    const WeightFormat own = p.embedding ? info(format).embedding : format;
    const Index O = p.shape.front(), I = p.shape.back(), blocks = ceil_div(I, kBlockInputs);
    codes = p.name, code_shape = p.shape;
    has_scales = info(own).has_scales, two_to_a_byte = info(own).bits == 4;
    if (!has_scales) return;
    codes += ".codes", scales = p.name + ".scales", scale_shape = {O, blocks};
    dtype = two_to_a_byte ? "U8" : "I8";
    if (two_to_a_byte) code_shape = {O, blocks * kBlockInputs / 2};
  }
  Index row_bytes() const { return code_shape.back(); }
};

// Codes of a row between a byte each and their stored form.
void spread(std::int8_t* code_I, const std::uint8_t* stored, Index I, bool two_to_a_byte) {
  for (Index i = 0; i < I; ++i) {
    if (!two_to_a_byte) {
      code_I[i] = static_cast<std::int8_t>(stored[i]);
      continue;
    }
    const int half = stored[i / 2] >> (i % 2 * 4) & 15;
    code_I[i] = static_cast<std::int8_t>(half < 8 ? half : half - 16);
  }
}
void gather(std::uint8_t* stored, const std::int8_t* code_I, Index I, bool two_to_a_byte) {
  for (Index i = 0; i < I; ++i)
    if (two_to_a_byte)
      stored[i / 2] = static_cast<std::uint8_t>(stored[i / 2] | (code_I[i] & 15) << (i % 2 * 4));
    else
      stored[i] = static_cast<std::uint8_t>(code_I[i]);
}

}  // namespace

void check_packed_weights(const ParamTable& table, WeightFormat format, const WeightFolder& folder) {
  std::set<std::string> known;
  for (const Param& p : table.list()) {
    if (!p.packed) {
      folder.expect(p.name, p.shape);
      known.insert(p.name);
      continue;
    }
    const StoredMatrix m(p, format);
    folder.expect_bytes(m.codes, m.dtype, m.code_shape);
    if (m.has_scales) folder.expect_bytes(m.scales, "BF16", m.scale_shape);
    known.insert({m.codes, m.has_scales ? m.scales : m.codes});
  }
  for (const std::string& name : folder.names())
    if (!known.contains(name))
      throw UserError("{}: tensor '{}' is not one of those this model has with {} weights (config.json)",
                      folder.path_of(name), name, info(format).name);
}

void load_packed_weights(Weights& weights, const WeightFolder& folder, const Exec& ex) {
  check_packed_weights(weights.table(), weights.format(), folder);
  std::vector<float> numbers;
  std::vector<std::uint8_t> codes;
  for (const Param& p : weights.table().list()) {
    if (!p.packed) {
      folder.read(p.name, p.shape, weights.values().data() + p.offset);
      continue;
    }
    const StoredMatrix m(p, weights.format());
    const Index I = p.shape.back();
    if (!m.has_scales) {
      numbers.resize(static_cast<std::size_t>(p.count));
      folder.read(p.name, p.shape, numbers.data());
      weights.packed()->pack(p, numbers.data(), ex);
      continue;
    }
    const Index blocks = m.scale_shape.back();
    numbers.resize(static_cast<std::size_t>(p.shape.front() * blocks));
    folder.read(m.scales, m.scale_shape, numbers.data());
    codes.resize(static_cast<std::size_t>(p.shape.front() * m.row_bytes()));
    folder.read_bytes(m.codes, m.dtype, m.code_shape, codes.data());
    weights.packed()->set_rows(
        p,
        [&](std::byte* data, const PackedShape& shape, Index o, Index row) {
          std::vector<std::int8_t> code(static_cast<std::size_t>(I));
          std::vector<bf16> scale(static_cast<std::size_t>(blocks));
          spread(code.data(), codes.data() + row * m.row_bytes(), I, m.two_to_a_byte);
          for (Index b = 0; b < blocks; ++b) scale[b] = to_bf16(numbers[row * blocks + b]);
          pack_codes(data, shape, o, code.data(), scale.data());
        },
        ex);
  }
}

PackedTensors::PackedTensors(const Weights& weights, const Exec& ex) {
  const auto add = [&](const std::string& name, const char* dtype, const std::vector<Index>& shape,
                       std::size_t bytes) {
    bytes_.emplace_back(bytes);
    tensors_.push_back({name, dtype, shape, bytes_.back().data()});
    return bytes_.back().data();
  };
  for (const Param& p : weights.table().list()) {
    if (!p.packed) {
      tensors_.push_back({p.name, "F32", p.shape, weights.values().data() + p.offset});
      continue;
    }
    const StoredMatrix m(p, weights.format());
    const Index O = p.shape.front(), I = p.shape.back();
    if (!m.has_scales) {
      std::vector<float> numbers(static_cast<std::size_t>(p.count));
      weights.packed()->unpack(numbers.data(), p, ex);
      auto* out = reinterpret_cast<bf16*>(add(m.codes, m.dtype, m.code_shape, numbers.size() * sizeof(bf16)));
      std::transform(numbers.begin(), numbers.end(), out, to_bf16);
      continue;
    }
    const Index blocks = m.scale_shape.back();
    auto* codes = reinterpret_cast<std::uint8_t*>(
        add(m.codes, m.dtype, m.code_shape, static_cast<std::size_t>(O * m.row_bytes())));
    auto* scales = reinterpret_cast<bf16*>(
        add(m.scales, "BF16", m.scale_shape, static_cast<std::size_t>(O * blocks) * sizeof(bf16)));
    const PackedWeights::Rows at = weights.packed()->rows(p);
    parallel_for(O, ex, [&](Index row) {
      std::vector<std::int8_t> code(static_cast<std::size_t>(I));
      unpack_codes(code.data(), scales + row * blocks, at.matrix, at.first + row);
      gather(codes + row * m.row_bytes(), code.data(), I, m.two_to_a_byte);
    });
  }
}

}  // namespace ddl
