#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/dtype.h"

namespace fsdpbench::testing {

/// Memory of exactly so many bytes, aligned to 64, filled with NaN (0xFF) and fenced on both sides.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::int64_t bytes = 0)
      : bytes_(static_cast<std::size_t>(bytes)), memory_(bytes_ + 3 * kFence, kPattern) {
    poison();
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  GuardedBuffer(GuardedBuffer&&) = default;
  GuardedBuffer& operator=(GuardedBuffer&&) = default;

  static GuardedBuffer of(const std::vector<float>& values, DType dtype = DType::f32) {
    GuardedBuffer buffer(static_cast<std::int64_t>(values.size()) * size_of(dtype));
    buffer.set(values, dtype);
    return buffer;
  }
  static GuardedBuffer of(const std::vector<std::int32_t>& values) {
    GuardedBuffer buffer(static_cast<std::int64_t>(values.size() * sizeof(std::int32_t)));
    std::copy_n(reinterpret_cast<const std::byte*>(values.data()), buffer.bytes_, buffer.data());
    return buffer;
  }

  std::byte* data() { return memory_.data() + start(); }
  const std::byte* data() const { return memory_.data() + start(); }
  float* floats() { return reinterpret_cast<float*>(data()); }
  const std::int32_t* integers() const { return reinterpret_cast<const std::int32_t*>(data()); }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_); }

  void poison() { std::fill_n(data(), bytes_, std::byte{0xFF}); }
  void set(const std::vector<float>& values, DType dtype) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::f32) {
        std::memcpy(data() + i * 4, &values[i], 4);
      } else {
        const std::uint16_t bits = float_to_bf16(values[i]);
        std::memcpy(data() + i * 2, &bits, 2);
      }
    }
  }
  std::vector<float> get(DType dtype = DType::f32) const {
    std::vector<float> values(bytes_ / static_cast<std::size_t>(size_of(dtype)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::f32) {
        std::memcpy(&values[i], data() + i * 4, 4);
      } else {
        std::uint16_t bits = 0;
        std::memcpy(&bits, data() + i * 2, 2);
        values[i] = bf16_to_float(bits);
      }
    }
    return values;
  }
  std::vector<std::byte> contents() const { return {data(), data() + bytes_}; }

  /// Nothing was written outside.
  bool intact() const {
    const std::byte* const end = memory_.data() + memory_.size();
    return std::all_of(memory_.data(), data(), is_pattern) && std::all_of(data() + bytes_, end, is_pattern);
  }

 private:
  static constexpr std::size_t kFence = 64;
  static constexpr std::byte kPattern{0xA5};
  static bool is_pattern(std::byte b) { return b == kPattern; }
  std::size_t start() const {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return kFence + (kFence - address % kFence) % kFence;
  }

  std::size_t bytes_;
  std::vector<std::byte> memory_;
};

}  // namespace fsdpbench::testing
