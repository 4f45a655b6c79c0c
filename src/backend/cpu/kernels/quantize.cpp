#include "backend/cpu/kernels/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/kernels/element.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Numbers that are unpacked or packed at a time: they stay in the first-level cache.
constexpr std::int64_t kPiece = 2048;

// ------------------------------------------------------------------------------------------------- to numbers

/// Bits of the largest magnitude. As integers, magnitudes compare as they are, infinities and NaNs above all.
std::uint32_t largest(const float* x, std::int64_t count) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU);
  return most;
}

/// `value`, below 2^22 in magnitude, as the nearest integer, halves to even.
inline std::int8_t rounded(float value) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: the sum's last bit is worth 1
  return static_cast<std::int8_t>(std::bit_cast<std::int32_t>(value + kShift) - std::bit_cast<std::int32_t>(kShift));
}

/// Two numbers a byte; `count` may be odd.
void pack(const std::int8_t* numbers, std::int64_t count, std::uint8_t* bytes) {
  const auto half = [](std::int8_t n) { return static_cast<unsigned>(static_cast<std::uint8_t>(n)) & 0xFU; };
  for (std::int64_t i = 0; i < count / 2; ++i) {
    bytes[i] = static_cast<std::uint8_t>(half(numbers[2 * i]) | half(numbers[2 * i + 1]) << 4);
  }
  if (count % 2 != 0) bytes[count / 2] = static_cast<std::uint8_t>(half(numbers[count - 1]));
}

/// One block: numbers from `bytes` on. Returns the scale.
float quantize_block(const float* x, std::int64_t count, Quantization format, std::uint8_t* bytes) {
  const std::uint32_t most = largest(x, count);
  const float m = std::bit_cast<float>(most);
  const float to_number = format.levels() / m;
  const bool finite = most < 0x7F800000U;
  if (!finite || !(to_number <= std::numeric_limits<float>::max())) {
    std::memset(bytes, 0, static_cast<std::size_t>(ceil_div(count * format.bits, 8)));
    return finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  if (format.fp8) {
    for (std::int64_t i = 0; i < count; ++i) bytes[i] = float_to_e4m3(x[i] * to_number);
  } else if (format.bits == 8) {
    auto* const numbers = reinterpret_cast<std::int8_t*>(bytes);
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = rounded(x[i] * to_number);
  } else {
    std::array<std::int8_t, kPiece> numbers;
    for (std::int64_t first = 0; first < count; first += kPiece) {
      const std::int64_t piece = std::min(kPiece, count - first);
      for (std::int64_t i = 0; i < piece; ++i) {
        numbers[static_cast<std::size_t>(i)] = rounded(x[first + i] * to_number);
      }
      pack(numbers.data(), piece, bytes + first / 2);
    }
  }
  return m / format.levels();
}

/// Writes a part, block by block: `block_of(first, count)` returns the fp32 numbers of one.
template <class BlockOf>
void write_part(std::byte* part, std::int64_t count, Quantization format, BlockOf&& block_of) {
  const std::int64_t payload = ceil_div(count * format.bits, 8);
  const std::int64_t padded = format.payload_bytes(count);
  for (std::int64_t b = 0; b < format.blocks(count); ++b) {
    const std::int64_t first = b * format.block;
    const std::int64_t n = std::min(format.block, count - first);
    auto* const bytes = reinterpret_cast<std::uint8_t*>(part) + first * format.bits / 8;
    const float scale = quantize_block(block_of(first, n), n, format, bytes);
    std::memcpy(part + padded + b * 4, &scale, 4);
  }
  if (padded > payload) std::memset(part + payload, 0, static_cast<std::size_t>(padded - payload));
}

// ----------------------------------------------------------------------------------------------- from numbers

inline float low_half(std::uint8_t byte) { return static_cast<float>(static_cast<std::int8_t>(byte << 4) >> 4); }
inline float high_half(std::uint8_t byte) { return static_cast<float>(static_cast<std::int8_t>(byte) >> 4); }

/// Calls `use(i, value)` for numbers [first, first + count) of a part, i from 0, all of one block.
template <class Use>
void for_each_value(const std::byte* part, std::int64_t first, std::int64_t count, float scale, Quantization format,
                    Use&& use) {
  if (format.fp8) {
    const auto* const numbers = reinterpret_cast<const std::uint8_t*>(part) + first;
    for (std::int64_t i = 0; i < count; ++i) use(i, e4m3_to_float(numbers[i]) * scale);
    return;
  }
  if (format.bits == 8) {
    const auto* const numbers = reinterpret_cast<const std::int8_t*>(part) + first;
    for (std::int64_t i = 0; i < count; ++i) use(i, static_cast<float>(numbers[i]) * scale);
    return;
  }
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(part);
  std::int64_t i = 0;
  if (first % 2 != 0 && count > 0) use(i++, high_half(bytes[first / 2]) * scale);
  const std::uint8_t* const pairs = bytes + (first + i) / 2;
  const std::int64_t whole = (count - i) / 2;
  for (std::int64_t p = 0; p < whole; ++p) {
    use(i + 2 * p, low_half(pairs[p]) * scale);
    use(i + 2 * p + 1, high_half(pairs[p]) * scale);
  }
  if (i + 2 * whole < count) use(count - 1, low_half(pairs[whole]) * scale);
}

/// The same over several blocks.
template <class Use>
void for_each_value_of_part(const QuantizedParts& parts, const std::byte* part, std::int64_t first, std::int64_t count,
                            Use&& use) {
  const std::byte* const scales = part + parts.format.payload_bytes(parts.count);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t block = (first + done) / parts.format.block;
    const std::int64_t n = std::min(count - done, (block + 1) * parts.format.block - first - done);
    float scale = 0;
    std::memcpy(&scale, scales + block * 4, 4);
    for_each_value(part, first + done, n, scale, parts.format,
                   [&](std::int64_t i, float value) { use(done + i, value); });
    done += n;
  }
}

/// sum[0..count) = the parts' numbers from `first` on, added in order. Pairs of 4 bits are taken apart before they are
/// added: both at once does not vectorise.
void add_up(const QuantizedParts& parts, int sources, std::int64_t first, std::int64_t count, float* sum) {
  std::array<float, kPiece> values;
  for (std::int64_t done = 0; done < count; done += kPiece) {
    const std::int64_t n = std::min(kPiece, count - done);
    float* const piece = sum + done;
    for (int s = 0; s < sources; ++s) {
      const std::byte* const part = parts.first + s * parts.stride;
      float* const to = s == 0 ? piece : values.data();
      for_each_value_of_part(parts, part, first + done, n, [to](std::int64_t i, float value) { to[i] = value; });
      for (std::int64_t i = 0; s > 0 && i < n; ++i) piece[i] += values[static_cast<std::size_t>(i)];
    }
  }
}

}  // namespace

void quantize(const ConstElements& source, std::byte* part, std::int64_t count, float factor, Quantization format) {
  with_element_type(source.dtype, [&]<class T>(T) {
    const T* const from = elements<T>(source.memory);
    std::vector<float> block(static_cast<std::size_t>(std::min(count, format.block)));
    write_part(part, count, format, [&](std::int64_t first, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) block[static_cast<std::size_t>(i)] = factor * load(from[first + i]);
      return block.data();
    });
  });
}

void dequantize(const QuantizedParts& parts, const Elements& target, std::span<const CopyRun> runs) {
  with_element_type(target.dtype, [&]<class T>(T) {
    for (const CopyRun& run : runs) {
      for (std::int64_t row = 0; row < run.rows && run.run > 0; ++row) {
        const std::int64_t source = run.source + row * run.source_stride;
        const std::byte* const part = parts.first + source / parts.count * parts.stride;
        T* const to = elements<T>(target.memory) + run.target + row * run.target_stride;
        for_each_value_of_part(parts, part, source % parts.count, run.run,
                               [&](std::int64_t i, float value) { store(to[i], value); });
      }
      const std::int64_t end = run.rows > 0 ? (run.rows - 1) * run.target_stride + run.run : 0;
      std::fill_n(elements<T>(target.memory) + run.target + end, run.zero_fill, T{});
    }
  });
}

void sum_quantized(const QuantizedParts& parts, int sources, float scale, const Elements& target) {
  with_element_type(target.dtype, [&]<class T>(T) {
    T* const to = elements<T>(target.memory);
    std::array<float, kPiece> sum;
    for (std::int64_t first = 0; first < parts.count; first += kPiece) {
      const std::int64_t n = std::min(kPiece, parts.count - first);
      add_up(parts, sources, first, n, sum.data());
      for (std::int64_t i = 0; i < n; ++i) store(to[first + i], scale * sum[static_cast<std::size_t>(i)]);
    }
  });
}

void requantize_sum(const QuantizedParts& parts, int sources, std::byte* part) {
  std::vector<float> block(static_cast<std::size_t>(std::min(parts.count, parts.format.block)));
  write_part(part, parts.count, parts.format, [&](std::int64_t first, std::int64_t n) {
    add_up(parts, sources, first, n, block.data());
    return block.data();
  });
}

}  // namespace fsdpbench::backend::cpu
