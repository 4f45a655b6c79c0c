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
  void attention(const AttentionCall& call) override;
  void attention_backward(const AttentionBackwardCall& call) override;
  /// As one product of all experts' rows: how they are shared changes no FLOP.
  void grouped_gemm(const GroupedGemm& gemm) override;
  void delay(std::int64_t nanoseconds) override { nanoseconds_ += static_cast<double>(nanoseconds); }

  void rms_norm(const RmsNormCall&) override {}
  void rms_norm_backward(const RmsNormBackwardCall&) override {}
  void rotary(const AttentionShape&, std::byte*, std::byte*, float, bool) override {}
  void swiglu(const SwigluCall&) override {}
  void swiglu_backward(const SwigluBackwardCall&) override {}
  void route(const RouteCall&) override {}
  void route_backward(const RouteBackwardCall&) override {}
  void dispatch(const DispatchCall&) override {}
  void combine(const CombineCall&) override {}
  void combine_backward(const CombineBackwardCall&) override {}
  void regroup(const RegroupCall&) override {}
  void embedding(const EmbeddingCall&) override {}
  void embedding_backward(const EmbeddingBackwardCall&) override {}
  void cross_entropy(const CrossEntropyCall&) override {}
  void cross_entropy_terms(const CrossEntropyCall&, float*) override {}
  void cross_entropy_of_terms(const CrossEntropyCall&, const float*, int) override {}
  void mean_squared_error(const MeanSquaredErrorCall&) override {}
  void add_bias(const RowShape&, std::byte*, const std::byte*) override {}
  void bias_backward(const RowShape&, const std::byte*, const Elements&) override {}
  void relu(const std::byte*, std::byte*, std::int64_t, DType) override {}
  void relu_backward(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void add(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void cast(const ConstElements&, const Elements&, std::int64_t, float) override {}
  void accumulate(const ConstElements&, float*, std::int64_t, float) override {}
  void copy_runs(const ConstElements&, const Elements&, std::span<const CopyRun>) override {}
  void fill_zero(std::byte*, std::int64_t) override {}
  void upload(const void*, std::byte*, std::int64_t) override {}
  void download(const std::byte*, void*, std::int64_t) override {}
  void sum_of_squares(const ConstElements&, std::int64_t, double, double*, bool) override {}
  void clip_factor(const double*, std::int64_t, double, float*) override {}
  void sgd(const ParameterUpdate&, const SgdStep&) override {}
  void adamw(const ParameterUpdate&, const AdamWStep&) override {}

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
