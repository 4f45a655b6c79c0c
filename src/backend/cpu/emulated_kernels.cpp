#include "backend/cpu/emulated_kernels.h"

#include <cstring>

namespace fsdpbench::backend::cpu {
namespace {

double causal_forward_flops(const AttentionShape& shape) {
  const double scores = static_cast<double>(shape.batch) * static_cast<double>(shape.heads) *
                        static_cast<double>(shape.seq) * static_cast<double>(shape.seq);
  return 2.0 * scores * static_cast<double>(shape.head_dim);
}

}  // namespace

void EmulatedKernels::gemm(const Gemm& gemm) {
  add_flops(2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k));
}

void EmulatedKernels::grouped_gemm(const GroupedGemm& gemm) {
  add_flops(2.0 * static_cast<double>(gemm.all.m) * static_cast<double>(gemm.all.n) * static_cast<double>(gemm.all.k));
}

void EmulatedKernels::attention(const AttentionCall& call) { add_flops(causal_forward_flops(call.shape)); }

void EmulatedKernels::attention_backward(const AttentionBackwardCall& call) {
  add_flops(2.5 * causal_forward_flops(call.shape));
}

void PcieKernels::copy(const void* source, void* target, std::int64_t bytes) {
  if (moves_) std::memcpy(target, source, static_cast<std::size_t>(bytes));
  add_nanoseconds((pcie_.latency_seconds + static_cast<double>(bytes) / pcie_.bytes_per_second) * 1e9);
}

}  // namespace fsdpbench::backend::cpu
