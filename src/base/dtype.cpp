#include "base/dtype.h"

namespace fsdpbench {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::f64: return "fp64";
    case DType::u8: return "u8";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (DType dtype : {DType::f32, DType::bf16, DType::i32, DType::f64, DType::u8}) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace fsdpbench
