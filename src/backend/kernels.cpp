#include "backend/kernels.h"

#include <string>

#include "backend/attention_scratch.h"
#include "base/error.h"

namespace fsdpbench::backend {

namespace {

[[noreturn]] void refuse(const char* what) {
  throw BackendError(std::string("this backend has no kernel that ") + what +
                     ": fsdp.gather_quantization and fsdp.reduce_quantization need the CPU backend");
}

}  // namespace

void Kernels::quantize(const std::byte*, DType, std::byte*, std::int64_t, float, Quantization) { refuse("quantises"); }
void Kernels::dequantize(const QuantizedParts&, std::byte*, DType, std::span<const CopyRun>) { refuse("dequantises"); }
void Kernels::sum_quantized(const QuantizedParts&, int, float, std::byte*, DType) { refuse("adds quantised numbers"); }
void Kernels::requantize_sum(const QuantizedParts&, int, std::byte*) { refuse("adds quantised numbers"); }

std::int64_t attention_scratch_bytes(const AttentionShape& shape) { return AttentionScratch::forward(shape).bytes; }

std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  return AttentionScratch::backward(shape).bytes;
}

}  // namespace fsdpbench::backend
