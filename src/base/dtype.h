#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fsdpbench {

/// Element type of a tensor. Reductions over bf16 accumulate in fp32 everywhere. i32 holds tokens, f64 sums of squares,
/// u8 bytes of quantised numbers (base/quantization.h): they are moved, never computed with like the others.
enum class DType : std::uint8_t { f32, bf16, i32, f64, u8 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::bf16 ? 2 : dtype == DType::f64 ? 8 : dtype == DType::u8 ? 1 : 4;
}

/// "fp32", "bf16", "i32", "fp64" or "u8": the spelling used in profiles and result files.
std::string_view to_string(DType dtype);

/// Inverse of to_string; nothing for an unknown name.
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace fsdpbench
