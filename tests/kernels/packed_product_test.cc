// Packed matrices and their products against plain loops on what the codes stand for.
#include "kernels/packed_product.h"

#include <cmath>

#include "kernels/isa.h"
#include "kernels/kernel_test.h"

namespace ddl::packed_product_test {
namespace {

constexpr WeightFormat kSmall[] = {WeightFormat::kBf16, WeightFormat::kQ8, WeightFormat::kQ4};

struct Packed {
  PackedShape shape;
  std::vector<std::byte> data;
  std::vector<double> w_OI;  // what the packed numbers stand for

  Packed(WeightFormat format, Index O, Index I, const std::vector<double>& w)
      : shape{format, O, I}, data(static_cast<std::size_t>(shape.bytes())) {
    std::vector<float> row(static_cast<std::size_t>(I));
    for (Index o = 0; o < O; ++o) {
      for (Index i = 0; i < I; ++i) row[i] = static_cast<float>(w[o * I + i]);
      pack_row(data.data(), shape, o, row.data());
    }
    for (Index o = 0; o < O; ++o) {
      unpack_row(row.data(), matrix(), o);
      w_OI.insert(w_OI.end(), row.begin(), row.end());
    }
  }
  PackedMatrix matrix() const { return {shape, data.data()}; }
};

// The activations as the kernel sees them: integers of 16 bits in blocks, where the weights have codes.
std::vector<double> seen(WeightFormat format, const std::vector<double>& x, Index I) {
  if (!info(format).has_scales) return x;
  std::vector<double> out = x;
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(I))
    for (Index begin = 0; begin < I; begin += kBlockInputs) {
      const Index end = std::min(I, begin + kBlockInputs);
      double largest = 0;
      for (Index i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[row + i]));
      if (largest == 0) continue;
      for (Index i = begin; i < end; ++i) {
        const float inverse = 32767.0f / static_cast<float>(largest);
        out[row + i] = std::nearbyint(static_cast<float>(x[row + i]) * inverse) * (largest / 32767);
      }
    }
  return out;
}

std::vector<double> product(const std::vector<double>& x, const std::vector<double>& w, Index N, Index O,
                            Index I) {
  std::vector<double> y(static_cast<std::size_t>(N * O));
  for (Index n = 0; n < N; ++n)
    for (Index o = 0; o < O; ++o)
      for (Index i = 0; i < I; ++i) y[n * O + o] += x[n * I + i] * w[o * I + i];
  return y;
}

std::vector<double> run(const Packed& w, const std::vector<double>& x, Index N, int threads = 1,
                        bool* intact = nullptr) {
  const Buffer<float> xb(x);
  Buffer<float> y(N * w.shape.O);
  const Index bytes = packed_product_scratch(N, w.shape.I);
  std::vector<float> scratch(static_cast<std::size_t>(bytes / 4 + 1), -1.0f);  // and a guard
  packed_product(y.data(), reinterpret_cast<std::byte*>(scratch.data()), xb.data(), w.matrix(), N,
                 Exec{.threads = threads});
  if (intact) *intact = y.intact() && scratch.back() == -1;
  return y.values();
}

// Half a step of the block; q4 has one code less above than below, so there a number may miss by a whole step.
TEST(PackedMatrix, RowsAreWithinTheStepOfTheirBlocks) {
  const Index O = 19, I = 77;
  const auto w = normals(O * I, 1);
  for (const WeightFormat format : kSmall) {
    const Packed packed(format, O, I, w);
    double worst = 0;
    for (Index o = 0; o < O; ++o)
      for (Index begin = 0; begin < I; begin += kBlockInputs) {
        const Index end = std::min(I, begin + kBlockInputs);
        double m = 0;
        for (Index i = begin; i < end; ++i) m = std::abs(w[o * I + i]) > std::abs(m) ? w[o * I + i] : m;
        for (Index i = begin; i < end; ++i) {
          const double number = w[o * I + i], error = std::abs(packed.w_OI[o * I + i] - number);
          double bound = std::abs(number) * kBf16Epsilon / 2;
          const double rounded = 1 + kBf16Epsilon / 2;  // of the scale
          if (format == WeightFormat::kQ8) bound = std::abs(m) / 127 / 2 * rounded;
          if (format == WeightFormat::kQ4)
            bound = std::abs(m) / 8 * rounded * (number * m < 0 && std::abs(number / m) > 7.4 / 8 ? 1 : 0.5);
          EXPECT_LE(error, bound * (1 + 1e-6)) << info(format).name << " " << o << " " << i;
          worst = std::max(worst, bound > 0 ? error / bound : 0);
        }
      }
    EXPECT_GT(worst, 0.9) << "the bound is the true one";
  }
}

TEST(PackedMatrix, PackingWhatWasPackedChangesNothing) {
  const Index O = 18, I = 70;
  for (const WeightFormat format : kSmall) {
    const Packed once(format, O, I, normals(O * I, 1)), twice(format, O, I, once.w_OI);
    EXPECT_EQ(once.data, twice.data) << info(format).name;
  }
}

TEST(PackedMatrix, CodesComeBackAsTheyWere) {
  const Index O = 33, I = 45;
  for (const WeightFormat format : {WeightFormat::kQ8, WeightFormat::kQ4}) {
    const Packed packed(format, O, I, normals(O * I, 1));
    std::vector<std::byte> again(packed.data.size());
    std::vector<std::int8_t> code(I);
    std::vector<bf16> scale(static_cast<std::size_t>(packed.shape.blocks()));
    for (Index o = 0; o < O; ++o) {
      unpack_codes(code.data(), scale.data(), packed.matrix(), o);
      for (Index i = 0; i < I; ++i)
        EXPECT_EQ(static_cast<float>(packed.w_OI[o * I + i]),
                  static_cast<float>(code[i]) * to_float(scale[i / kBlockInputs]));
      pack_codes(again.data(), packed.shape, o, code.data(), scale.data());
    }
    EXPECT_EQ(again, packed.data);
  }
}

TEST(PackedMatrix, ZerosAndTheLeastNumbers) {
  for (const WeightFormat format : kSmall)
    for (const double value : {0.0, 1e-45, -1e-40, 3e38}) {
      const Packed packed(format, 1, 3, {0, value, 0});
      EXPECT_EQ(packed.w_OI[0], 0);
      EXPECT_LE(std::abs(packed.w_OI[1] - value), std::max(1e-40, std::abs(value) * 0.01));
    }
}

TEST(PackedProduct, IsTheSumOverWhatTheCodesStandFor) {
  for (const WeightFormat format : kSmall)
    for (Index N : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 50})
      for (Index O : {1, 15, 16, 17, 64, 113})
        for (Index I : {1, 31, 32, 33, 96, 100}) {
          const auto x = normals(N * I, 1);
          const Packed w(format, O, I, normals(O * I, 2));
          bool intact = false;
          const auto y = run(w, x, N, 1, &intact);
          ASSERT_TRUE(intact);
          const auto expected = product(seen(format, x, I), w.w_OI, N, O, I);
          ASSERT_LT(rounding_ratio(y, expected, I + 4), 1)
              << info(format).name << " " << N << " " << O << " " << I;
          if (N == 0) continue;
          // The last input forgotten, the next row's weights, the neighbour's inputs.
          auto tail = expected;
          for (Index n = 0; n < N; ++n)
            for (Index o = 0; o < O; ++o) tail[n * O + o] -= x[n * I + I - 1] * w.w_OI[o * I + I - 1];
          ASSERT_GT(rounding_ratio(y, tail, I + 4), 1);
          if (O > 1) {
            auto moved = w.w_OI;
            std::rotate(moved.begin(), moved.begin() + I, moved.end());
            ASSERT_GT(rounding_ratio(y, product(seen(format, x, I), moved, N, O, I), I + 4), 1);
          }
          if (I > kBlockInputs && format != WeightFormat::kBf16) {  // one code off by one
            auto off = w.w_OI;
            for (Index o = 0; o < O; ++o) off[o * I + 3] *= 1.02;
            ASSERT_GT(rounding_ratio(y, product(seen(format, x, I), off, N, O, I), I + 4), 1);
          }
        }
}

// Against the unquantised activations: each input is off by half a step of its block at most.
TEST(PackedProduct, ActivationsCostHalfAStepEach) {
  const Index N = 4, O = 40, I = 200;
  const auto x = normals(N * I, 1);
  for (const WeightFormat format : {WeightFormat::kQ8, WeightFormat::kQ4}) {
    const Packed w(format, O, I, normals(O * I, 2));
    const auto y = run(w, x, N), exact = product(x, w.w_OI, N, O, I);
    for (Index n = 0; n < N; ++n)
      for (Index o = 0; o < O; ++o) {
        double bound = 0;
        for (Index begin = 0; begin < I; begin += kBlockInputs) {
          double largest = 0, weights = 0;
          for (Index i = begin; i < std::min(I, begin + kBlockInputs); ++i) {
            largest = std::max(largest, std::abs(x[n * I + i]));
            weights += std::abs(w.w_OI[o * I + i]);
          }
          bound += largest / 32767 / 2 * weights;
        }
        EXPECT_LE(std::abs(y[n * O + o] - exact[n * O + o]), 1.1 * bound);
      }
  }
}

TEST(PackedProduct, ATokensBitsDependOnNothingElse) {
  const Index O = 301, I = 517;
  const auto x = normals(53 * I, 1);
  for (const WeightFormat format : kSmall) {
    const Packed w(format, O, I, normals(O * I, 2));
    const auto all = run(w, x, 53, 3);
    for (int threads : {1, 2})
      for (Index N : {1, 2, 3, 5, 16})
        for (Index first : {0, 3, 31}) {
          const std::vector<double> some(x.begin() + first * I, x.begin() + (first + N) * I);
          const auto y = run(w, some, N, threads);
          for (Index i = 0; i < N * O; ++i) ASSERT_EQ(y[i], all[first * O + i]) << threads << " " << N;
        }
  }
}

// Integers are exact, and all else is one chain of fused operations. (Portable code may not fuse them.)
TEST(PackedProduct, VectorInstructionSetsGiveTheSameBits) {
  const std::string before = current_isa();
  const Index O = 50, I = 100;
  for (const WeightFormat format : kSmall)
    for (Index N : {1, 4, 8, 13}) {
      const auto x = normals(N * I, 1);
      const Packed w(format, O, I, normals(O * I, 2));
      use_isa(before);
      const auto expected = run(w, x, N);
      for (const std::string& isa : available_isas()) {
        if (isa == "scalar" || before == "scalar") continue;
        use_isa(isa);
        EXPECT_EQ(run(w, x, N), expected) << info(format).name << " " << N << " " << isa;
      }
    }
  use_isa(before);
}

TEST(PackedProduct, WhatIsNotFiniteStaysSo) {
  const Index I = 64;
  for (const WeightFormat format : kSmall)
    for (const double bad : {std::nan(""), double{INFINITY}, -double{INFINITY}}) {
      auto x = normals(2 * I, 1);
      x[5] = bad;
      const auto y = run(Packed(format, 20, I, normals(20 * I, 2)), x, 2);
      for (Index o = 0; o < 20; ++o) {
        EXPECT_FALSE(std::isfinite(y[o])) << info(format).name;
        EXPECT_TRUE(std::isfinite(y[20 + o])) << "the other token";
      }
    }
}

}  // namespace
}  // namespace ddl::packed_product_test
