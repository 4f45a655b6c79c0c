#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/quantization.h"

namespace fsdpbench::backend {

/// c = alpha * op(a) * op(b) + beta * addend, row-major, fp32 accumulation, rounded once.
/// op(a) is m x k, op(b) is k x n, c is m x n; with transpose_a, a is stored k x m; with transpose_b, b is n x k.
struct Gemm {
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  const std::byte* addend = nullptr;  ///< stored like c, of which it shares no byte; null: c itself
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType input_dtype = DType::f32;   ///< of a and b
  DType output_dtype = DType::f32;  ///< of c
  float alpha = 1.0F;
  float beta = 0.0F;  ///< 0 (overwrite, c may be uninitialised) or 1 (add)
  // Elements between the starts of neighbouring rows of the matrices as they are stored; 0: rows lie back to back.
  // What lies between rows is neither read nor written.
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;

  /// The same product with its strides written out.
  Gemm with_strides() const {
    Gemm full = *this;
    if (a_stride == 0) full.a_stride = transpose_a ? m : k;
    if (b_stride == 0) full.b_stride = transpose_b ? k : n;
    if (c_stride == 0) full.c_stride = n;
    return full;
  }
};

/// Grouped-query causal attention over [batch, seq, heads, head_dim] tensors (heads of one token adjacent).
/// Query head h reads key/value head h / (heads / kv_heads). Softmax scale 1/sqrt(head_dim).
struct AttentionShape {
  std::int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::f32;
  // Elements from the heads of one token to those of the next: of queries and their gradient, and of keys, values and
  // theirs; 0: they lie back to back, as those of the output always do. What lies between is neither read nor written.
  std::int64_t query_stride = 0, key_stride = 0;

  /// A token's elements in the output.
  std::int64_t width() const { return heads * head_dim; }
  /// The strides written out.
  std::int64_t query_row() const { return query_stride > 0 ? query_stride : width(); }
  std::int64_t key_row() const { return key_stride > 0 ? key_stride : kv_heads * head_dim; }
};

/// One strided block copy: `rows` runs of `run` elements.
struct CopyRun {
  std::int64_t source = 0;  ///< first element in the source
  std::int64_t target = 0;  ///< first element in the target
  std::int64_t rows = 1;
  std::int64_t run = 0;            ///< contiguous elements a row
  std::int64_t source_stride = 0;  ///< elements between row starts
  std::int64_t target_stride = 0;
  std::int64_t zero_fill = 0;  ///< elements set to 0 after the last run in the target (padding)
};

/// Parts of quantised numbers (base/quantization.h) in device memory, one after another; their memory is aligned to 4.
struct QuantizedParts {
  const std::byte* first = nullptr;
  std::int64_t count = 0;   ///< numbers of each part
  std::int64_t stride = 0;  ///< bytes from one part to the next
  Quantization format;
};

/// The rows that one rank has of a table, or logits, of `whole` tokens: [first, first + count).
struct VocabularyPart {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t whole = 0;

  constexpr bool holds(std::int32_t token) const { return token >= first && token < first + count; }
  /// In this part or another.
  constexpr bool knows(std::int32_t token) const { return token >= 0 && token < whole; }
};

struct AdamWStep {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  std::int64_t step = 1;  ///< counted from 1, for bias correction
  /// Where launches of a graph in which this is captured find their `step`; null: it is not captured. Updates with
  /// equal steps in one capture are of one step in each launch, too.
  const std::int64_t* step_of_launch = nullptr;
  const float* gradient_scale = nullptr;  ///< one float of device memory that multiplies the gradient; null: 1
};

/// A parameter's gradient as backward or a reduction left it: fp32, or bf16, which is exact in fp32. What reads either
/// gives the bits that it would give of a cast.
struct Gradient {
  // NOLINTNEXTLINE(google-explicit-constructor): most gradients are fp32
  Gradient(const float* values) : memory(reinterpret_cast<const std::byte*>(values)) {}
  Gradient(const std::byte* values, DType type) : memory(values), dtype(type) {}

  Gradient from(std::int64_t first) const { return {memory + first * size_of(dtype), dtype}; }

  const std::byte* memory;
  DType dtype = DType::f32;
};

/// embedding_backward sums so many positions of a token at a time, and then these sums in their order. How a token's
/// rows are grouped follows from its own positions, so ranks that have parts of a table get the bits of the whole one.
inline constexpr std::int64_t kEmbeddingChunk = 64;

/// The numeric kernels of one device, called from a task on a lane. Pointers are device memory; dtypes f32 or bf16
/// unless said; statistics (rstd, log-sum-exp, loss) are f32. Accumulation is fp32. Outputs may not alias inputs
/// unless said. Counts are elements. `gradient_dtype`, that of a parameter's gradient, is `dtype` or f32. Every kernel
/// gives the same bits for the same input, whatever else runs; those of a GPU unless its Arithmetic (cuda_options.h)
/// lets them do otherwise.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// See Gemm. Nothing if c is empty; with k = 0, c = beta * c.
  virtual void gemm(const Gemm& gemm) = 0;

  /// Per row of x [rows, width]: rstd = 1/sqrt(mean(x^2) + epsilon), y = x * rstd * weight.
  virtual void rms_norm(const std::byte* x, const std::byte* weight, std::byte* y, float* rstd, std::int64_t rows,
                        std::int64_t width, float epsilon, DType dtype) = 0;
  /// d_x += gradient of rms_norm (adds: the residual path's gradient is already there); d_weight is overwritten. `y`
  /// gets what rms_norm gives: the gradient of the next product's weight needs it; null: nothing does.
  virtual void rms_norm_backward(const std::byte* d_y, const std::byte* x, const std::byte* weight, const float* rstd,
                                 std::byte* d_x, std::byte* d_weight, std::int64_t rows, std::int64_t width,
                                 DType dtype, DType gradient_dtype, std::byte* y = nullptr) = 0;

  /// Rotary embedding in place on queries [batch, seq, heads, head_dim] and keys [batch, seq, kv_heads, head_dim],
  /// halves rotated (Llama's "rotate half"); `inverse` rotates back (the backward). Without key heads k may be null.
  virtual void rotary(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse) = 0;

  /// `scratch`: attention_scratch_bytes(shape), or attention_backward_scratch_bytes(shape) for the backward
  /// (backend/attention_scratch.h).
  virtual void attention(const AttentionShape& shape, const std::byte* q, const std::byte* k, const std::byte* v,
                         std::byte* out, float* log_sum_exp, std::byte* scratch) = 0;
  /// d_q, d_k and d_v are overwritten; `out` and `log_sum_exp` are what attention() left.
  virtual void attention_backward(const AttentionShape& shape, const std::byte* d_out, const std::byte* q,
                                  const std::byte* k, const std::byte* v, const std::byte* out,
                                  const float* log_sum_exp, std::byte* d_q, std::byte* d_k, std::byte* d_v,
                                  std::byte* scratch) = 0;

  /// y = silu(gate) * up, y [rows, width]; rows of gate and up lie `stride` elements apart.
  virtual void swiglu(const std::byte* gate, const std::byte* up, std::byte* y, std::int64_t rows, std::int64_t width,
                      std::int64_t stride, DType dtype) = 0;
  /// d_gate and d_up, with rows as those of gate and up, are overwritten. `y`, which may be d_y, gets what swiglu
  /// gives: the gradient of the next product's weight needs it; null: nothing does.
  virtual void swiglu_backward(const std::byte* d_y, const std::byte* gate, const std::byte* up, std::byte* d_gate,
                               std::byte* d_up, std::int64_t rows, std::int64_t width, std::int64_t stride, DType dtype,
                               std::byte* y = nullptr) = 0;

  /// y[t] = table[token[t]], table [vocab, width].
  virtual void embedding(const std::byte* table, const std::int32_t* tokens, std::byte* y, std::int64_t count,
                         std::int64_t vocab, std::int64_t width, DType dtype) = 0;
  /// d_table[token[t]] += d_y[t], in the order of kEmbeddingChunk; with `overwrite` d_table is zeroed first.
  virtual void embedding_backward(const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table,
                                  std::int64_t count, std::int64_t vocab, std::int64_t width, bool overwrite,
                                  DType dtype, DType gradient_dtype) = 0;

  /// loss = mean over rows of -log softmax(logits[row])[target[row]]; logits [rows, vocab], rows `stride` elements
  /// apart, become d_logits = loss_scale * d loss / d logits in place.
  virtual void cross_entropy(std::byte* logits, const std::int32_t* targets, float* loss, std::int64_t rows,
                             std::int64_t vocab, std::int64_t stride, float loss_scale, DType dtype) = 0;

  // A vocabulary that is split over ranks.

  /// As embedding of the part's rows; 0 for tokens that are not among them. Tokens must be below part.whole.
  virtual void embedding_part(const std::byte* table, const std::int32_t* tokens, std::byte* y, std::int64_t count,
                              const VocabularyPart& part, std::int64_t width, DType dtype) = 0;
  /// As embedding_backward for the part's rows.
  virtual void embedding_part_backward(const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table,
                                       std::int64_t count, const VocabularyPart& part, std::int64_t width,
                                       bool overwrite, DType dtype, DType gradient_dtype) = 0;
  /// What the softmax of rows needs of this part of their logits [rows, part.count]: `terms` gets the largest of each
  /// row, then the sum of exp(logit - that) of each, then the target's logit of each, 0 where it is not in this part.
  virtual void cross_entropy_terms(const std::byte* logits, const std::int32_t* targets, float* terms,
                                   std::int64_t rows, const VocabularyPart& part, DType dtype) = 0;
  /// As cross_entropy, from this part of the logits and the terms of all `parts` parts, one after another.
  virtual void cross_entropy_of_terms(std::byte* logits, const std::int32_t* targets, const float* terms, int parts,
                                      float* loss, std::int64_t rows, const VocabularyPart& part, float loss_scale,
                                      DType dtype) = 0;

  /// loss = mean over all elements of (prediction - target)^2; d_prediction = loss_scale * gradient.
  virtual void mean_squared_error(const std::byte* prediction, const float* target, std::byte* d_prediction,
                                  float* loss, std::int64_t count, float loss_scale, DType dtype) = 0;
  /// y[row] += bias, y [rows, width].
  virtual void add_bias(std::byte* y, const std::byte* bias, std::int64_t rows, std::int64_t width, DType dtype) = 0;
  /// d_bias = sum over rows of d_y; overwritten.
  virtual void bias_backward(const std::byte* d_y, std::byte* d_bias, std::int64_t rows, std::int64_t width,
                             DType dtype, DType gradient_dtype) = 0;
  /// y = max(x, 0).
  virtual void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype) = 0;
  /// d_x = y > 0 ? d_y : 0, in place allowed (d_x == d_y).
  virtual void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                             DType dtype) = 0;

  /// y = x + residual; y may be x or residual.
  virtual void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype) = 0;

  /// target = factor * source with conversion (round to nearest even); target may be source if the dtypes are equal.
  virtual void cast(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
                    std::int64_t count, float factor) = 0;
  /// target (f32) += factor * source: the product is rounded to f32, whatever the source's dtype, and then added.
  virtual void accumulate(const std::byte* source, DType source_dtype, float* target, std::int64_t count,
                          float factor) = 0;
  /// All runs, in order, with conversion; offsets in elements of the respective dtype.
  virtual void copy_runs(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
                         std::span<const CopyRun> runs) = 0;
  // Quantised numbers. Their bits are the same on each backend.

  /// One part of `count` numbers: factor * source, the product rounded to fp32 before it is quantised.
  virtual void quantize(const std::byte* source, DType dtype, std::byte* part, std::int64_t count, float factor,
                        Quantization format) = 0;
  /// All runs, in order, rounded to `dtype`. Sources are counted in numbers, those of all parts one after another; no
  /// row of a run goes beyond its part.
  virtual void dequantize(const QuantizedParts& parts, std::byte* target, DType dtype,
                          std::span<const CopyRun> runs) = 0;
  /// target[0..count) = scale * (part 0 + part 1 + … of `sources` parts), in fp32 and in this order, rounded once.
  virtual void sum_quantized(const QuantizedParts& parts, int sources, float scale, std::byte* target, DType dtype) = 0;
  /// The same, unscaled, and the fp32 sum quantised in the same format: a part.
  virtual void requantize_sum(const QuantizedParts& parts, int sources, std::byte* part) = 0;

  /// `bytes` may be 0.
  virtual void fill_zero(std::byte* target, std::int64_t bytes) = 0;
  /// target = bytes of host memory `source` (which must stay valid until the lane was waited for; of an upload that is
  /// captured, which each launch does with what is there then, as long as the graph is launched).
  virtual void upload(const void* source, std::byte* target, std::int64_t bytes) = 0;
  /// host memory `target` = bytes of device memory `source`; valid after the lane was waited for.
  virtual void download(const std::byte* source, void* target, std::int64_t bytes) = 0;

  /// *sum (device memory) = factor * sum of squares of x, accumulated in double, plus the old *sum unless `overwrite`.
  virtual void sum_of_squares(const Gradient& x, std::int64_t count, double factor, double* sum, bool overwrite) = 0;
  /// *factor (device memory) = min(1, max_norm / (sqrt(sums[0] + … + sums[count-1]) + 1e-6)), as
  /// torch.nn.utils.clip_grad_norm_ computes it.
  virtual void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor) = 0;
  /// parameter -= learning_rate * (*gradient_scale * gradient + weight_decay * parameter); gradient_scale is one float
  /// of device memory, null means 1. `rounded`, here and below: gets the new parameter as bf16, as cast would round it;
  /// null: nothing does.
  virtual void sgd(float* parameter, const Gradient& gradient, std::int64_t count, float learning_rate,
                   float weight_decay, const float* gradient_scale, std::byte* rounded = nullptr) = 0;
  /// Decoupled weight decay (Loshchilov & Hutter), as torch.optim.AdamW computes it.
  virtual void adamw(float* parameter, const Gradient& gradient, float* first_moment, float* second_moment,
                     std::int64_t count, const AdamWStep& step, std::byte* rounded = nullptr) = 0;
  /// Busy or asleep for so long: injected trouble.
  virtual void delay(std::int64_t nanoseconds) = 0;
};

}  // namespace fsdpbench::backend
