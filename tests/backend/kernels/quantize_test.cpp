// Quantised numbers on the CPU against a plain reference that goes number by number: to the bit, for odd sizes, zeros,
// what is not finite, and what is very small.
#include "backend/cpu/kernels/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/bf16.h"

namespace fsdpbench::backend {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Part = std::vector<std::byte>;

std::vector<float> random_numbers(std::int64_t count, float deviation = 1.0F, unsigned seed = 7) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = normal(generator);
  return values;
}

/// Bits of the e4m3 number nearest to `x`, halves to the even one, by trying all of them.
int nearest_e4m3(float x) {
  const auto value = [](int bits) {
    const int exponent = bits >> 3, mantissa = bits & 7;
    return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  };
  int best = 0;
  for (int bits = 0; bits < 0x7F; ++bits) {
    const double away = std::fabs(value(bits) - std::fabs(double{x})),
                 least = std::fabs(value(best) - std::fabs(double{x}));
    if (away < least || (away == least && bits % 2 == 0)) best = bits;
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

float value_of_e4m3(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>((bits & 0x80) != 0 ? -magnitude : magnitude);
}

/// As base/quantization.h says, with the C library's rounding and one branch after the other.
Part reference_part(const std::vector<float>& x, Quantization format) {
  const auto count = static_cast<std::int64_t>(x.size());
  Part part(static_cast<std::size_t>(format.bytes(count)));
  std::vector<int> numbers(x.size());
  for (std::int64_t b = 0; b * format.block < count; ++b) {
    const std::int64_t first = b * format.block, last = std::min(count, first + format.block);
    float most = 0;
    bool finite = true;
    for (std::int64_t i = first; i < last; ++i) {
      finite = finite && std::isfinite(x[i]);
      most = std::max(most, std::fabs(x[i]));
    }
    float scale = 0;
    if (!finite) {
      scale = kNaN;
    } else if (std::isfinite(format.levels() / most)) {
      const float to_number = format.levels() / most;
      for (std::int64_t i = first; i < last; ++i) {
        const float scaled = x[i] * to_number;
        numbers[i] = format.fp8 ? nearest_e4m3(scaled) : static_cast<int>(std::nearbyint(scaled));
      }
      scale = most / format.levels();
    }
    std::memcpy(part.data() + format.payload_bytes(count) + 4 * b, &scale, 4);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (format.bits == 8) {
      part[i] = static_cast<std::byte>(numbers[i]);
    } else {
      part[i / 2] |= static_cast<std::byte>((numbers[i] & 0xF) << (i % 2 == 0 ? 0 : 4));
    }
  }
  return part;
}

std::vector<float> reference_values(const Part& part, std::int64_t count, Quantization format) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    float scale = 0;
    std::memcpy(&scale, part.data() + format.payload_bytes(count) + 4 * (i / format.block), 4);
    if (format.fp8) {
      values[i] = value_of_e4m3(static_cast<int>(part[i])) * scale;
      continue;
    }
    int number = 0;
    if (format.bits == 8) {
      number = static_cast<std::int8_t>(part[i]);
    } else {
      const int half = static_cast<int>(part[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 0xF;
      number = half < 8 ? half : half - 16;
    }
    values[i] = static_cast<float>(number) * scale;
  }
  return values;
}

/// Of fp32 numbers, by the kernel; what was in the part before does not show.
Part quantized(const std::vector<float>& x, Quantization format, float factor = 1.0F) {
  const auto count = static_cast<std::int64_t>(x.size());
  Part part(static_cast<std::size_t>(format.bytes(count)), std::byte{0xA5});
  cpu::quantize({reinterpret_cast<const std::byte*>(x.data()), DType::f32}, part.data(), count, factor, format);
  return part;
}

QuantizedParts parts_of(const Part& message, std::int64_t count, Quantization format) {
  return {message.data(), count, format.bytes(count), format};
}

std::vector<float> values_of(const Part& part, std::int64_t count, Quantization format) {
  std::vector<float> values(static_cast<std::size_t>(count));
  const CopyRun all{.rows = 1, .run = count};
  cpu::dequantize(parts_of(part, count, format), {reinterpret_cast<std::byte*>(values.data()), DType::f32}, {&all, 1});
  return values;
}

/// NaNs are equal here.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return (std::isnan(x) && std::isnan(y)) || std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

const std::vector<Quantization> kFormats{{8, 32}, {8, 64},   {8, 4096},     {4, 32},
                                         {4, 96}, {4, 8192}, {8, 32, true}, {8, 2048, true}};

TEST(Quantize, IsTheReferenceToTheBitForOddSizes) {
  for (const Quantization format : kFormats) {
    for (const std::int64_t count : {1, 2, 3, 31, 32, 33, 63, 97, 1000, 4097, 20001}) {
      const std::vector<float> x = random_numbers(count, 0.02F);
      const Part part = quantized(x, format);
      EXPECT_EQ(part, reference_part(x, format)) << format.bits << " bits, " << count;
      EXPECT_TRUE(same_bits(values_of(part, count, format), reference_values(part, count, format))) << count;
    }
  }
}

TEST(Quantize, IsWithinHalfAStepOfEachNumber) {
  for (const Quantization format : kFormats) {
    const std::vector<float> x = random_numbers(10'000);
    const std::vector<float> values = values_of(quantized(x, format), 10'000, format);
    for (std::int64_t first = 0; first < 10'000; first += format.block) {
      const std::int64_t last = std::min<std::int64_t>(10'000, first + format.block);
      float most = 0;
      for (std::int64_t i = first; i < last; ++i) most = std::max(most, std::fabs(x[i]));
      for (std::int64_t i = first; i < last; ++i) {
        const float integer_step = most / format.levels();
        const float step = format.fp8 ? std::max(std::fabs(x[i]) / 8, integer_step / 512) : integer_step;
        ASSERT_LE(std::fabs(values[i] - x[i]), 0.5001F * step) << i;
      }
    }
  }
}

TEST(Quantize, HalvesGoToEven) {
  // The largest magnitude is L, so that the scale is 1 and the numbers are the values themselves.
  const std::vector<float> x{127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 126.5F};
  EXPECT_EQ(values_of(quantized(x, {8, 32}), 8, {8, 32}), (std::vector<float>{127, 0, 2, 2, 0, -2, -2, 126}));
  const std::vector<float> y{-7, 0.5F, 1.5F, 6.5F, -6.5F};
  EXPECT_EQ(values_of(quantized(y, {4, 32}), 5, {4, 32}), (std::vector<float>{-7, 0, 2, 6, -6}));
  const std::vector<float> z{448, 17, 19, -17, 0x1p-10F, 0x3p-10F, -0x3p-10F, 0x1.Fp-7F, 0x1.Dp-7F};
  EXPECT_EQ(values_of(quantized(z, {8, 32, true}), 9, {8, 32, true}),
            (std::vector<float>{448, 16, 20, -16, 0, 0x1p-8F, -0x1p-8F, 0x1p-6F, 0x1.Cp-7F}));
}

TEST(Quantize, ZerosStayZero) {
  for (const Quantization format : kFormats) {
    EXPECT_EQ(values_of(quantized(std::vector<float>(99), format), 99, format), std::vector<float>(99));
  }
}

TEST(Quantize, ABlockThatIsNotFiniteIsNaNAndItsNeighboursAreNot) {
  for (const Quantization format : {Quantization{8, 32}, Quantization{4, 32}, Quantization{8, 32, true}}) {
    for (const float bad : {kInfinity, -kInfinity, kNaN}) {
      for (const std::size_t at : {std::size_t{32}, std::size_t{47}, std::size_t{63}}) {
        std::vector<float> x = random_numbers(100);
        x[at] = bad;
        const Part part = quantized(x, format);
        EXPECT_TRUE(same_bits(values_of(part, 100, format), reference_values(part, 100, format)));
        const std::vector<float> values = values_of(part, 100, format);
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i / 32 == 1) << i;
      }
    }
  }
}

TEST(Quantize, VerySmallBlocksBecomeZeroAndSmallOnesDoNot) {
  for (const Quantization format : kFormats) {
    for (const float most : {1e-30F, 1e-36F, 3e-37F, 1e-38F, 1e-42F, std::numeric_limits<float>::denorm_min()}) {
      std::vector<float> x = random_numbers(70);
      for (float& v : x) v = std::clamp(v / 4, -1.0F, 1.0F) * most;
      x[3] = most;
      EXPECT_EQ(quantized(x, format), reference_part(x, format)) << most;
      const std::vector<float> values = values_of(quantized(x, format), 70, format);
      EXPECT_EQ(values[3] == 0.0F, !std::isfinite(format.levels() / most)) << most;
      for (const float v : values) EXPECT_TRUE(std::isfinite(v));
    }
  }
}

TEST(Quantize, TheFactorComesBeforeTheRounding) {
  for (const Quantization format : kFormats) {
    std::vector<float> x = random_numbers(333);
    const Part part = quantized(x, format, 1.0F / 3.0F);
    for (float& v : x) v *= 1.0F / 3.0F;
    EXPECT_EQ(part, reference_part(x, format));
  }
}

TEST(Quantize, OfBf16IsThatOfItsValues) {
  for (const Quantization format : kFormats) {
    std::vector<float> x = random_numbers(501);
    std::vector<std::uint16_t> low;
    for (float& v : x) {
      low.push_back(float_to_bf16(v));
      v = bf16_to_float(low.back());
    }
    Part part(static_cast<std::size_t>(format.bytes(501)));
    cpu::quantize({reinterpret_cast<const std::byte*>(low.data()), DType::bf16}, part.data(), 501, 1.0F, format);
    EXPECT_EQ(part, reference_part(x, format));
  }
}

/// `count` parts of `numel` numbers each.
Part message(int count, std::int64_t numel, Quantization format) {
  Part all;
  for (int r = 0; r < count; ++r) {
    const Part part = quantized(random_numbers(numel, 1.0F, static_cast<unsigned>(r)), format);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(Dequantize, RunsBeginAnywhereAndGoAcrossBlocks) {
  constexpr std::int64_t kNumel = 131;
  for (const Quantization format : {Quantization{8, 32}, Quantization{4, 32}, Quantization{8, 32, true}}) {
    const Part all = message(3, kNumel, format);
    const std::int64_t stride = format.bytes(kNumel);
    std::vector<float> whole;
    for (int r = 0; r < 3; ++r) {
      const Part part(all.begin() + r * stride, all.begin() + (r + 1) * stride);
      const std::vector<float> values = reference_values(part, kNumel, format);
      whole.insert(whole.end(), values.begin(), values.end());
    }
    for (const std::int64_t first : {0, 1, 31, 32, 33, 64}) {
      for (const std::int64_t run : {0, 1, 2, 33, 66, 67}) {
        const std::vector<CopyRun> runs{
            {.source = first, .target = 5, .rows = 3, .run = run, .source_stride = kNumel, .target_stride = run}};
        std::vector<float> expected(300, -9.0F);
        for (std::int64_t row = 0; row < 3; ++row) {
          for (std::int64_t i = 0; i < run; ++i) expected[5 + row * run + i] = whole[row * kNumel + first + i];
        }
        std::vector<float> values(300, -9.0F);
        cpu::dequantize(parts_of(all, kNumel, format), {reinterpret_cast<std::byte*>(values.data()), DType::f32}, runs);
        EXPECT_TRUE(same_bits(values, expected)) << format.bits << " bits, " << run << " from " << first;
        std::vector<std::uint16_t> low(300, float_to_bf16(-9.0F)), rounded;
        for (const float v : expected) rounded.push_back(float_to_bf16(v));
        cpu::dequantize(parts_of(all, kNumel, format), {reinterpret_cast<std::byte*>(low.data()), DType::bf16}, runs);
        EXPECT_EQ(low, rounded);
      }
    }
  }
}

TEST(SumQuantized, AddsInRankOrderInFp32AndRoundsOnce) {
  for (const Quantization format : kFormats) {
    for (const std::int64_t numel : {1, 33, 2049, 5001}) {
      for (const int sources : {1, 2, 3, 8}) {
        const Part all = message(sources, numel, format);
        const std::int64_t stride = format.bytes(numel);
        std::vector<float> sum;
        for (int s = 0; s < sources; ++s) {
          const Part part(all.begin() + s * stride, all.begin() + (s + 1) * stride);
          const std::vector<float> values = reference_values(part, numel, format);
          if (s == 0) sum = values;
          for (std::size_t i = 0; s > 0 && i < sum.size(); ++i) sum[i] += values[i];
        }
        Part again(static_cast<std::size_t>(stride));
        cpu::requantize_sum(parts_of(all, numel, format), sources, again.data());
        EXPECT_EQ(again, reference_part(sum, format)) << sources << " of " << numel;

        std::vector<float> scaled = sum, values(sum.size());
        for (float& v : scaled) v *= 0.3F;
        cpu::sum_quantized(parts_of(all, numel, format), sources, 0.3F,
                           {reinterpret_cast<std::byte*>(values.data()), DType::f32});
        EXPECT_TRUE(same_bits(values, scaled)) << sources << " of " << numel;
        std::vector<std::uint16_t> low(sum.size()), rounded;
        for (const float v : scaled) rounded.push_back(float_to_bf16(v));
        cpu::sum_quantized(parts_of(all, numel, format), sources, 0.3F,
                           {reinterpret_cast<std::byte*>(low.data()), DType::bf16});
        EXPECT_EQ(low, rounded) << sources << " of " << numel;
      }
    }
  }
}

TEST(Quantization, BytesOfAPart) {
  EXPECT_EQ((Quantization{8, 64}.bytes(64)), 64 + 4);
  EXPECT_EQ((Quantization{8, 64}.bytes(65)), 68 + 8);
  EXPECT_EQ((Quantization{4, 64}.bytes(64)), 32 + 4);
  EXPECT_EQ((Quantization{4, 64}.bytes(65)), 36 + 8);
  EXPECT_EQ((Quantization{4, 64}.bytes(0)), 0);
  EXPECT_EQ((Quantization{8, 8000}.bytes(8'000'000)), 8'004'000);  // 1.0005 bytes a number
}

}  // namespace
}  // namespace fsdpbench::backend
