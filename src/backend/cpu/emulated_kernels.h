#pragma once

#include <cstdint>
#include <utility>

#include "backend/kernels.h"
#include "base/duration.h"
#include "base/link_model.h"

namespace fsdpbench::backend::cpu {

/// Kernels that touch no memory and only add up the time they would take: FLOPs / rate for matrix products and
/// attention, nothing for everything else. The lane lets that time pass once per op, so that the errors of sleeping
/// do not add up over an op's kernels.
class EmulatedKernels : public Kernels {
 public:
  explicit EmulatedKernels(double flops_per_s) : nanoseconds_per_flop_(1e9 / flops_per_s) {}

  /// Time of all kernels called since the last call.
  std::int64_t take_nanoseconds() { return whole_ns(std::exchange(nanoseconds_, 0.0)); }

  void gemm(const Gemm& gemm) override;
  /// Causal: half of the 4 * batch * heads * seq^2 * head_dim FLOPs of full attention; the backward 2.5 times that.
  void attention(const AttentionShape& shape, const std::byte*, const std::byte*, const std::byte*, std::byte*, float*,
                 std::byte*) override;
  void attention_backward(const AttentionShape& shape, const std::byte*, const std::byte*, const std::byte*,
                          const std::byte*, const std::byte*, const float*, std::byte*, std::byte*, std::byte*,
                          std::byte*) override;
  void delay(std::int64_t nanoseconds) override { nanoseconds_ += static_cast<double>(nanoseconds); }

  void rms_norm(const std::byte*, const std::byte*, std::byte*, float*, std::int64_t, std::int64_t, float,
                DType) override {}
  void rms_norm_backward(const std::byte*, const std::byte*, const std::byte*, const float*, std::byte*, std::byte*,
                         std::int64_t, std::int64_t, DType, DType, std::byte*) override {}
  void rotary(const AttentionShape&, std::byte*, std::byte*, float, bool) override {}
  void swiglu(const std::byte*, const std::byte*, std::byte*, std::int64_t, std::int64_t, std::int64_t,
              DType) override {}
  void swiglu_backward(const std::byte*, const std::byte*, const std::byte*, std::byte*, std::byte*, std::int64_t,
                       std::int64_t, std::int64_t, DType, std::byte*) override {}
  void embedding(const std::byte*, const std::int32_t*, std::byte*, std::int64_t, std::int64_t, std::int64_t,
                 DType) override {}
  void embedding_backward(const std::byte*, const std::int32_t*, std::byte*, std::int64_t, std::int64_t, std::int64_t,
                          bool, DType, DType) override {}
  void embedding_part(const std::byte*, const std::int32_t*, std::byte*, std::int64_t, const VocabularyPart&,
                      std::int64_t, DType) override {}
  void embedding_part_backward(const std::byte*, const std::int32_t*, std::byte*, std::int64_t, const VocabularyPart&,
                               std::int64_t, bool, DType, DType) override {}
  void cross_entropy_terms(const std::byte*, const std::int32_t*, float*, std::int64_t, const VocabularyPart&,
                           DType) override {}
  void cross_entropy_of_terms(std::byte*, const std::int32_t*, const float*, int, float*, std::int64_t,
                              const VocabularyPart&, float, DType) override {}
  void cross_entropy(std::byte*, const std::int32_t*, float*, std::int64_t, std::int64_t, std::int64_t, float,
                     DType) override {}
  void mean_squared_error(const std::byte*, const float*, std::byte*, float*, std::int64_t, float, DType) override {}
  void add_bias(std::byte*, const std::byte*, std::int64_t, std::int64_t, DType) override {}
  void bias_backward(const std::byte*, std::byte*, std::int64_t, std::int64_t, DType, DType) override {}
  void relu(const std::byte*, std::byte*, std::int64_t, DType) override {}
  void relu_backward(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void add(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void cast(const std::byte*, DType, std::byte*, DType, std::int64_t, float) override {}
  void accumulate(const std::byte*, DType, float*, std::int64_t, float) override {}
  void copy_runs(const std::byte*, DType, std::byte*, DType, std::span<const CopyRun>) override {}
  void quantize(const std::byte*, DType, std::byte*, std::int64_t, float, Quantization) override {}
  void dequantize(const QuantizedParts&, std::byte*, DType, std::span<const CopyRun>) override {}
  void sum_quantized(const QuantizedParts&, int, float, std::byte*, DType) override {}
  void requantize_sum(const QuantizedParts&, int, std::byte*) override {}
  void fill_zero(std::byte*, std::int64_t) override {}
  void upload(const void*, std::byte*, std::int64_t) override {}
  void download(const std::byte*, void*, std::int64_t) override {}
  void sum_of_squares(const Gradient&, std::int64_t, double, double*, bool) override {}
  void clip_factor(const double*, std::int64_t, double, float*) override {}
  void sgd(float*, const Gradient&, std::int64_t, float, float, const float*, std::byte*) override {}
  void adamw(float*, const Gradient&, float*, float*, std::int64_t, const AdamWStep&, std::byte*) override {}

 protected:
  void add_nanoseconds(double nanoseconds) { nanoseconds_ += nanoseconds; }

 private:
  void add_flops(double flops) { nanoseconds_ += flops * nanoseconds_per_flop_; }

  double nanoseconds_per_flop_;
  double nanoseconds_ = 0;
};

/// Copies over a modelled PCIe: bytes / bandwidth + latency each. One lane a direction, so nobody shares it.
class PcieKernels final : public EmulatedKernels {
 public:
  /// `moves`: bytes are copied, too.
  PcieKernels(const LinkModel& pcie, bool moves) : EmulatedKernels(1), pcie_(pcie), moves_(moves) {}

  void upload(const void* source, std::byte* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void download(const std::byte* source, void* target, std::int64_t bytes) override { copy(source, target, bytes); }

 private:
  void copy(const void* source, void* target, std::int64_t bytes);

  LinkModel pcie_;
  bool moves_;
};

}  // namespace fsdpbench::backend::cpu
