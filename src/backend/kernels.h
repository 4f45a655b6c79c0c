#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/dtype.h"

namespace fsdpbench::backend {

/// Device memory of the caller, and the dtype of what lies in it.
struct Elements {
  std::byte* memory = nullptr;
  DType dtype = DType::f32;

  /// Without the first `count`.
  Elements after(std::int64_t count) const { return {memory + count * size_of(dtype), dtype}; }
  float* floats() const { return reinterpret_cast<float*>(memory); }
  double* doubles() const { return reinterpret_cast<double*>(memory); }
};

/// Elements to be read. Kernels that read either dtype give for bf16, which is exact in fp32, the bits that they would
/// give of a cast.
struct ConstElements {
  ConstElements() = default;
  ConstElements(const std::byte* values, DType type) : memory(values), dtype(type) {}
  // NOLINTNEXTLINE(google-explicit-constructor): what can be written can be read
  ConstElements(const Elements& values) : memory(values.memory), dtype(values.dtype) {}
  // NOLINTNEXTLINE(google-explicit-constructor): most gradients are fp32
  ConstElements(const float* values) : memory(reinterpret_cast<const std::byte*>(values)) {}

  ConstElements after(std::int64_t count) const { return {memory + count * size_of(dtype), dtype}; }

  const std::byte* memory = nullptr;
  DType dtype = DType::f32;
};

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
  // Elements between rows are neither read nor written.
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;

  /// This product with its strides written out.
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

  /// A token's elements in queries and the output, and in keys and values.
  std::int64_t width() const { return heads * head_dim; }
  std::int64_t key_width() const { return kv_heads * head_dim; }
};

/// Rows of `width` elements, back to back.
struct RowShape {
  std::int64_t rows = 0, width = 0;
  DType dtype = DType::f32;
};

// Arguments of kernels, as Gemm is for products. The memory is the caller's, device memory, and has the dtype
// of `shape` unless said.

/// Per row of x: rstd = 1/sqrt(mean(x^2) + epsilon), y = x * rstd * weight.
struct RmsNormCall {
  RowShape shape;  ///< of x and y
  const std::byte* x = nullptr;
  const std::byte* weight = nullptr;  ///< [width]
  std::byte* y = nullptr;
  float* rstd = nullptr;  ///< [rows], for the backward
  float epsilon = 0;
};
struct RmsNormBackwardCall {
  RowShape shape;  ///< of x, y and their gradients
  const std::byte* d_y = nullptr;
  const std::byte* x = nullptr;  ///< as rms_norm had it, like weight
  const std::byte* weight = nullptr;
  const float* rstd = nullptr;  ///< as rms_norm left it
  std::byte* d_x = nullptr;     ///< the gradient is added: that of the residual path is already there
  Elements d_weight;            ///< [width] of the shape's dtype or f32; overwritten
  std::byte* y = nullptr;       ///< gets what rms_norm gives: the next product's gradient needs it; null: none does
};

/// See AttentionShape.
struct AttentionCall {
  AttentionShape shape;
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  std::byte* out = nullptr;
  float* log_sum_exp = nullptr;  ///< [batch, heads, seq], for the backward
  std::byte* scratch = nullptr;  ///< attention_scratch_bytes(shape), backend/kernels.h
};
struct AttentionBackwardCall {
  AttentionShape shape;
  const std::byte* d_out = nullptr;
  const std::byte* q = nullptr;  ///< as attention had it, like k and v
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const std::byte* out = nullptr;  ///< as attention left it, like log_sum_exp
  const float* log_sum_exp = nullptr;
  std::byte* d_q = nullptr;  ///< overwritten, like d_k and d_v
  std::byte* d_k = nullptr;
  std::byte* d_v = nullptr;
  std::byte* scratch = nullptr;  ///< attention_backward_scratch_bytes(shape)
};

/// y = silu(gate) * up.
struct SwigluCall {
  RowShape shape;  ///< of all three
  const std::byte* gate = nullptr;
  const std::byte* up = nullptr;
  std::byte* y = nullptr;
};
struct SwigluBackwardCall {
  RowShape shape;  ///< of all
  const std::byte* d_y = nullptr;
  const std::byte* gate = nullptr;  ///< as swiglu had it, like up
  const std::byte* up = nullptr;
  std::byte* d_gate = nullptr;  ///< overwritten, like d_up
  std::byte* d_up = nullptr;
  std::byte* y = nullptr;  ///< gets what swiglu gives, as in RmsNormBackwardCall; may be d_y
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

/// The rows that one rank has of a table, or the columns of logits, of `whole` tokens: [first, first + count).
struct VocabularyPart {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t whole = 0;

  /// Part of a rank where no ranks split it.
  static constexpr VocabularyPart all(std::int64_t vocab) { return {0, vocab, vocab}; }

  constexpr bool holds(std::int32_t token) const { return token >= first && token < first + count; }
  /// In this part or another.
  constexpr bool knows(std::int32_t token) const { return token >= 0 && token < whole; }
};

/// y[t] = table[token[t]]; 0 for a token of another part.
struct EmbeddingCall {
  RowShape shape;       ///< of y
  VocabularyPart part;  ///< the table's rows, each of `width`
  const std::byte* table = nullptr;
  const std::int32_t* tokens = nullptr;  ///< one a row of y, below part.whole
  std::byte* y = nullptr;
};
/// d_table[token[t]] += d_y[t], in the order of kEmbeddingChunk.
struct EmbeddingBackwardCall {
  RowShape shape;       ///< of d_y
  VocabularyPart part;  ///< the table's rows
  const std::byte* d_y = nullptr;
  const std::int32_t* tokens = nullptr;
  Elements d_table;        ///< of the shape's dtype or f32
  bool overwrite = false;  ///< d_table is zeroed first
};

/// loss = mean over rows of -log softmax(logits[row])[target[row]].
struct CrossEntropyCall {
  VocabularyPart part;  ///< the logits' columns
  std::int64_t rows = 0;
  std::int64_t stride = 0;      ///< elements between the starts of rows; 0: back to back, as those of a part always are
  DType dtype = DType::f32;     ///< of logits
  std::byte* logits = nullptr;  ///< become d_logits = loss_scale * d loss / d logits in place
  const std::int32_t* targets = nullptr;  ///< one a row, below part.whole
  float* loss = nullptr;
  float loss_scale = 1.0F;
};

/// loss = mean over all elements of (prediction - target)^2.
struct MeanSquaredErrorCall {
  std::int64_t count = 0;
  DType dtype = DType::f32;  ///< of prediction and its gradient
  const std::byte* prediction = nullptr;
  const float* target = nullptr;
  std::byte* d_prediction = nullptr;  ///< loss_scale * d loss / d prediction
  float* loss = nullptr;
  float loss_scale = 1.0F;
};

/// Arrays that an optimizer reads and writes for some parameters; arrays have `count` elements.
struct ParameterUpdate {
  std::int64_t count = 0;
  float* parameter = nullptr;
  ConstElements gradient;
  float* first_moment = nullptr;  ///< adamw alone, like second_moment
  float* second_moment = nullptr;
  std::byte* rounded = nullptr;  ///< gets the new parameters as bf16, as cast would round them; null: nothing does
};

struct SgdStep {
  float learning_rate = 0, weight_decay = 0;
  const float* gradient_scale = nullptr;  ///< one float of device memory that multiplies the gradient; null: 1
};

struct AdamWStep {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  std::int64_t step = 1;                  ///< counted from 1, for bias correction
  const float* gradient_scale = nullptr;  ///< one float of device memory that multiplies the gradient; null: 1
};

/// embedding_backward sums so many positions of a token at a time, and then these sums in their order. How a token's
/// rows are grouped follows from its own positions, so ranks that have parts of a table get the bits of the whole one.
inline constexpr std::int64_t kEmbeddingChunk = 64;

/// The numeric kernels of one device, called from a task on a lane. Pointers are device memory; dtypes f32 or bf16
/// unless said; statistics (rstd, log-sum-exp, loss) are f32. Accumulation is fp32. Outputs may not alias inputs
/// unless said. Counts are elements. Every kernel gives the same bits for the same input, whatever else runs; those of
/// a GPU unless its Arithmetic (backend.h) lets them do otherwise.
class Kernels {
 public:
  virtual ~Kernels() = default;

  /// See Gemm. Nothing if c is empty; with k = 0, c = beta * c.
  virtual void gemm(const Gemm& gemm) = 0;

  virtual void rms_norm(const RmsNormCall& call) = 0;
  virtual void rms_norm_backward(const RmsNormBackwardCall& call) = 0;

  /// Rotary embedding in place on queries [batch, seq, heads, head_dim] and keys [batch, seq, kv_heads, head_dim],
  /// halves rotated (Llama's "rotate half"); `inverse` rotates back (the backward). Without key heads k may be null.
  virtual void rotary(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse) = 0;

  virtual void attention(const AttentionCall& call) = 0;
  virtual void attention_backward(const AttentionBackwardCall& call) = 0;

  virtual void swiglu(const SwigluCall& call) = 0;
  virtual void swiglu_backward(const SwigluBackwardCall& call) = 0;

  virtual void embedding(const EmbeddingCall& call) = 0;
  virtual void embedding_backward(const EmbeddingBackwardCall& call) = 0;

  /// Cross entropy over a whole vocabulary.
  virtual void cross_entropy(const CrossEntropyCall& call) = 0;
  // Vocabulary split over ranks: each computes the terms of its part, and gradients and loss from the terms of all.
  /// Softmax terms of rows from this part of their logits, which stay as they are: `terms` gets the largest of
  /// each row, then the sum of exp(logit - that) of each, then the target's logit of each, 0 where it is not in this
  /// part.
  virtual void cross_entropy_terms(const CrossEntropyCall& call, float* terms) = 0;
  /// As cross_entropy, from this part of the logits and the terms of all `parts` parts, one after another.
  virtual void cross_entropy_of_terms(const CrossEntropyCall& call, const float* terms, int parts) = 0;

  virtual void mean_squared_error(const MeanSquaredErrorCall& call) = 0;
  /// y[row] += bias.
  virtual void add_bias(const RowShape& shape, std::byte* y, const std::byte* bias) = 0;
  /// d_bias = sum over rows of d_y; of the shape's dtype or f32; overwritten.
  virtual void bias_backward(const RowShape& shape, const std::byte* d_y, const Elements& d_bias) = 0;
  /// y = max(x, 0).
  virtual void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype) = 0;
  /// d_x = y > 0 ? d_y : 0, in place allowed (d_x == d_y).
  virtual void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                             DType dtype) = 0;

  /// y = x + residual; y may be x or residual.
  virtual void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype) = 0;

  /// target = factor * source with conversion (round to nearest even); target may be source if the dtypes are equal.
  virtual void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor) = 0;
  /// target (f32) += factor * source: the product is rounded to f32, whatever the source's dtype, and then added.
  virtual void accumulate(const ConstElements& source, float* target, std::int64_t count, float factor) = 0;
  /// All runs, in order, with conversion; offsets in elements of the respective dtype.
  virtual void copy_runs(const ConstElements& source, const Elements& target, std::span<const CopyRun> runs) = 0;

  /// `bytes` may be 0.
  virtual void fill_zero(std::byte* target, std::int64_t bytes) = 0;
  /// target = bytes of host memory `source` (which must stay valid until the lane was waited for).
  virtual void upload(const void* source, std::byte* target, std::int64_t bytes) = 0;
  /// host memory `target` = bytes of device memory `source`; valid after the lane was waited for.
  virtual void download(const std::byte* source, void* target, std::int64_t bytes) = 0;

  /// *sum (device memory) = factor * sum of squares of x, accumulated in double, plus the old *sum unless `overwrite`.
  virtual void sum_of_squares(const ConstElements& x, std::int64_t count, double factor, double* sum,
                              bool overwrite) = 0;
  /// *factor (device memory) = min(1, max_norm / (sqrt(sums[0] + … + sums[count-1]) + 1e-6)), as
  /// torch.nn.utils.clip_grad_norm_ computes it.
  virtual void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor) = 0;
  /// parameter -= learning_rate * (*gradient_scale * gradient + weight_decay * parameter).
  virtual void sgd(const ParameterUpdate& update, const SgdStep& step) = 0;
  /// Decoupled weight decay (Loshchilov & Hutter), as torch.optim.AdamW computes it.
  virtual void adamw(const ParameterUpdate& update, const AdamWStep& step) = 0;
  /// Busy or asleep for so long: injected trouble.
  virtual void delay(std::int64_t nanoseconds) = 0;
};

/// Scratch of the attention kernels for what they compute of one block of query rows of one head at a time. Offsets are
/// bytes from the start of the scratch, multiples of 64.
struct AttentionScratch {
  static constexpr std::int64_t kBlockRows = 128;

  std::int64_t block_rows = 0;     ///< query rows a block
  std::int64_t scores = 0;         ///< f32 [block_rows, seq]; with f32 tensors the probabilities replace it
  std::int64_t probabilities = 0;  ///< [block_rows, seq] in the tensors' dtype
  std::int64_t d_scores = 0;       ///< backward: f32 [block_rows, seq]
  std::int64_t d_scores_low = 0;   ///< backward: the same in the tensors' dtype
  std::int64_t d_key = 0;          ///< backward: f32 [seq, head_dim], summed over blocks and query heads
  std::int64_t d_value = 0;        ///< backward: f32 [seq, head_dim]
  std::int64_t bytes = 0;

  /// Scratch of attention() for this shape.
  static AttentionScratch forward(const AttentionShape& shape) {
    AttentionScratch s;
    s.block_rows = std::min(kBlockRows, shape.seq);
    s.take_pair(shape, s.scores, s.probabilities);
    return s;
  }

  /// Scratch of attention_backward().
  static AttentionScratch backward(const AttentionShape& shape) {
    AttentionScratch s = forward(shape);
    s.take_pair(shape, s.d_scores, s.d_scores_low);
    s.d_key = s.take(shape.seq * shape.head_dim * size_of(DType::f32));
    s.d_value = s.take(shape.seq * shape.head_dim * size_of(DType::f32));
    return s;
  }

 private:
  std::int64_t take(std::int64_t size) {
    const std::int64_t offset = bytes;
    bytes += round_up(size, 64);
    return offset;
  }
  /// An f32 tile, and one in the tensors' dtype, which is the same tile if that is f32.
  void take_pair(const AttentionShape& shape, std::int64_t& full, std::int64_t& low) {
    const std::int64_t tile = block_rows * shape.seq;
    full = take(tile * size_of(DType::f32));
    low = shape.dtype == DType::f32 ? full : take(tile * size_of(shape.dtype));
  }
};

/// Scratch bytes that attention needs for this shape, on every backend at most.
inline std::int64_t attention_scratch_bytes(const AttentionShape& shape) {
  return AttentionScratch::forward(shape).bytes;
}
/// Scratch bytes of attention_backward.
inline std::int64_t attention_backward_scratch_bytes(const AttentionShape& shape) {
  return AttentionScratch::backward(shape).bytes;
}

/// Maker of the kernels of a lane whose work the host's processors do, on the thread that calls them. Large updates
/// and copies may run on so many threads at once, the calling one among them; the bits do not depend on how many.
using MakeHostKernels = std::function<std::unique_ptr<Kernels>(int threads)>;

}  // namespace fsdpbench::backend
