#pragma once

#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void cast(cudaStream_t stream, const ConstElements& source, const Elements& target, std::int64_t count, float factor);
void accumulate(cudaStream_t stream, const ConstElements& source, float* target, std::int64_t count, float factor);

/// See backend/kernels.h. Targets of different runs must not overlap: the runs of one call are copied side by side.
void copy_runs(cudaStream_t stream, const ConstElements& source, const Elements& target, std::span<const CopyRun> runs);

/// Keeps `stream` busy for so long, by one thread that sleeps.
void delay(cudaStream_t stream, std::int64_t nanoseconds);

/// See backend/kernels.h. A token outside the whole vocabulary gives a row of NaN forward, so that the loss shows it,
/// and nothing backward.
void embedding(cudaStream_t stream, const EmbeddingCall& call);
void embedding_backward(cudaStream_t stream, const EmbeddingBackwardCall& call, Scratch& scratch);

/// See backend/kernels.h.
void add_bias(cudaStream_t stream, const RowShape& shape, std::byte* y, const std::byte* bias);
void bias_backward(cudaStream_t stream, const RowShape& shape, const std::byte* d_y, const Elements& d_bias,
                   Scratch& scratch);
void relu(cudaStream_t stream, const std::byte* x, std::byte* y, std::int64_t count, DType dtype);
void relu_backward(cudaStream_t stream, const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                   DType dtype);
void add(cudaStream_t stream, const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count,
         DType dtype);

/// See backend/kernels.h. A target outside the whole vocabulary makes the loss and its row of gradients NaN, on every
/// rank.
void cross_entropy(cudaStream_t stream, const CrossEntropyCall& call, Scratch& scratch);
void cross_entropy_terms(cudaStream_t stream, const CrossEntropyCall& call, float* terms);
void cross_entropy_of_terms(cudaStream_t stream, const CrossEntropyCall& call, const float* terms, int parts,
                            Scratch& scratch);
void mean_squared_error(cudaStream_t stream, const MeanSquaredErrorCall& call, Scratch& scratch);

/// See backend/kernels.h.
void rms_norm(cudaStream_t stream, const RmsNormCall& call);
void rms_norm_backward(cudaStream_t stream, const RmsNormBackwardCall& call, Scratch& scratch);

/// See backend/kernels.h. sgd and adamw give the bits that the CPU backend gives: the same roundings in the same order.
void sum_of_squares(cudaStream_t stream, const ConstElements& x, std::int64_t count, double factor, double* sum,
                    bool overwrite, Scratch& scratch);
void clip_factor(cudaStream_t stream, const double* sums, std::int64_t count, double max_norm, float* factor);
void sgd(cudaStream_t stream, const ParameterUpdate& update, const SgdStep& step);
void adamw(cudaStream_t stream, const ParameterUpdate& update, const AdamWStep& step);

/// Rotary embedding, see backend/kernels.h. Keeps the cosines and sines of the longest sequence so far on the device.
class Rotary {
 public:
  explicit Rotary(cudaStream_t stream) : stream_(stream), table_(stream) {}

  void operator()(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse);
  std::int64_t bytes() const { return table_.bytes(); }

 private:
  void prepare(std::int64_t seq, std::int64_t half, float theta);

  cudaStream_t stream_;
  Scratch table_;  // f32 [2, seq, half]: cosines, sines
  std::int64_t seq_ = 0;
  std::int64_t half_ = 0;
  float theta_ = 0.0F;
};

/// See backend/kernels.h.
void swiglu(cudaStream_t stream, const SwigluCall& call);
void swiglu_backward(cudaStream_t stream, const SwigluBackwardCall& call);

/// Device memory that order_tokens() needs.
std::int64_t token_order_bytes(std::int64_t count);

/// The positions 0 .. count-1 by their tokens, those of equal tokens in order; tokens outside [0, vocab) come last. In
/// `memory`. Takes time in proportion to `count`: digit by digit, from the lowest.
const std::int32_t* order_tokens(cudaStream_t stream, const std::int32_t* tokens, std::int64_t count,
                                 std::int64_t vocab, std::byte* memory);

}  // namespace fsdpbench::backend::cuda
