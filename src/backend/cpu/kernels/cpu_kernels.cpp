#include "backend/cpu/kernels/cpu_kernels.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/kernels/copy.h"
#include "backend/cpu/kernels/crew.h"
#include "backend/cpu/kernels/embedding.h"
#include "backend/cpu/kernels/linear.h"
#include "backend/cpu/kernels/loss.h"
#include "backend/cpu/kernels/matmul.h"
#include "backend/cpu/kernels/norm.h"
#include "backend/cpu/kernels/optimizer.h"
#include "backend/cpu/kernels/quantize.h"
#include "backend/cpu/kernels/rotary.h"
#include "backend/cpu/kernels/swiglu.h"

namespace fsdpbench::backend::cpu {
namespace {

/// Gathers the kernels of this folder, with what they keep between calls: prepared products, tables, scratch.
class CpuKernels : public Kernels {
 public:
  void gemm(const Gemm& gemm) override {
    const Gemm g = gemm.with_strides();
    if (g.m == 0 || g.n == 0) return;
    const bool add = g.beta != 0.0F;
    if (add ? g.addend != nullptr : g.k == 0) {  // oneDNN adds to what lies in c
      const std::int64_t element = size_of(g.output_dtype);
      for (std::int64_t row = 0; row < g.m; ++row) {
        std::byte* const target = g.c + row * g.c_stride * element;
        const auto bytes = static_cast<std::size_t>(g.n * element);
        add ? std::memcpy(target, g.addend + row * g.c_stride * element, bytes) : std::memset(target, 0, bytes);
      }
    }
    if (g.k == 0) return;
    matmul_({.m = g.m,
             .n = g.n,
             .k = g.k,
             .a_stride = g.a_stride,
             .b_stride = g.b_stride,
             .c_stride = g.c_stride,
             .transpose_a = g.transpose_a,
             .transpose_b = g.transpose_b,
             .input = g.input_dtype,
             .output = g.output_dtype,
             .alpha = g.alpha,
             .beta = g.beta},
            g.a, g.b, g.c);
  }

  void rms_norm(const std::byte* x, const std::byte* weight, std::byte* y, float* rstd, std::int64_t rows,
                std::int64_t width, float epsilon, DType dtype) override {
    cpu::rms_norm(x, weight, y, rstd, rows, width, epsilon, dtype);
  }
  void rms_norm_backward(const std::byte* d_y, const std::byte* x, const std::byte* weight, const float* rstd,
                         std::byte* d_x, std::byte* d_weight, std::int64_t rows, std::int64_t width, DType dtype,
                         DType gradient_dtype, std::byte* y) override {
    cpu::rms_norm_backward(d_y, x, weight, rstd, d_x, d_weight, rows, width, dtype, gradient_dtype, y, scratch_);
  }
  void rotary(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse) override {
    rotary_(q, shape.batch, shape.seq, shape.heads, shape.head_dim, shape.query_row(), theta, inverse, shape.dtype);
    rotary_(k, shape.batch, shape.seq, shape.kv_heads, shape.head_dim, shape.key_row(), theta, inverse, shape.dtype);
  }
  void attention(const AttentionShape& shape, const std::byte* q, const std::byte* k, const std::byte* v,
                 std::byte* out, float* log_sum_exp, std::byte* scratch) override {
    cpu::attention(matmul_, shape, q, k, v, out, log_sum_exp, scratch);
  }
  void attention_backward(const AttentionShape& shape, const std::byte* d_out, const std::byte* q, const std::byte* k,
                          const std::byte* v, const std::byte* out, const float* log_sum_exp, std::byte* d_q,
                          std::byte* d_k, std::byte* d_v, std::byte* scratch) override {
    cpu::attention_backward(matmul_, shape, d_out, q, k, v, out, log_sum_exp, d_q, d_k, d_v, scratch);
  }
  void swiglu(const std::byte* gate, const std::byte* up, std::byte* y, std::int64_t rows, std::int64_t width,
              std::int64_t stride, DType dtype) override {
    cpu::swiglu(gate, up, y, rows, width, stride, dtype);
  }
  void swiglu_backward(const std::byte* d_y, const std::byte* gate, const std::byte* up, std::byte* d_gate,
                       std::byte* d_up, std::int64_t rows, std::int64_t width, std::int64_t stride, DType dtype,
                       std::byte* y) override {
    cpu::swiglu_backward(d_y, gate, up, d_gate, d_up, rows, width, stride, dtype, y);
  }
  void embedding(const std::byte* table, const std::int32_t* tokens, std::byte* y, std::int64_t count,
                 std::int64_t vocab, std::int64_t width, DType dtype) override {
    embedding_.forward(table, tokens, y, count, {0, vocab, vocab}, width, dtype);
  }
  void embedding_backward(const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table, std::int64_t count,
                          std::int64_t vocab, std::int64_t width, bool overwrite, DType dtype,
                          DType gradient_dtype) override {
    embedding_.backward(d_y, tokens, d_table, count, {0, vocab, vocab}, width, overwrite, dtype, gradient_dtype);
  }
  void cross_entropy(std::byte* logits, const std::int32_t* targets, float* loss, std::int64_t rows, std::int64_t vocab,
                     std::int64_t stride, float loss_scale, DType dtype) override {
    cpu::cross_entropy(logits, targets, loss, rows, vocab, stride, loss_scale, dtype, scratch_);
  }
  void embedding_part(const std::byte* table, const std::int32_t* tokens, std::byte* y, std::int64_t count,
                      const VocabularyPart& part, std::int64_t width, DType dtype) override {
    embedding_.forward(table, tokens, y, count, part, width, dtype);
  }
  void embedding_part_backward(const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table, std::int64_t count,
                               const VocabularyPart& part, std::int64_t width, bool overwrite, DType dtype,
                               DType gradient_dtype) override {
    embedding_.backward(d_y, tokens, d_table, count, part, width, overwrite, dtype, gradient_dtype);
  }
  void cross_entropy_terms(const std::byte* logits, const std::int32_t* targets, float* terms, std::int64_t rows,
                           const VocabularyPart& part, DType dtype) override {
    cpu::cross_entropy_terms(logits, targets, terms, rows, part, dtype);
  }
  void cross_entropy_of_terms(std::byte* logits, const std::int32_t* targets, const float* terms, int parts,
                              float* loss, std::int64_t rows, const VocabularyPart& part, float loss_scale,
                              DType dtype) override {
    cpu::cross_entropy_of_terms(logits, targets, terms, parts, loss, rows, part, loss_scale, dtype);
  }
  void mean_squared_error(const std::byte* prediction, const float* target, std::byte* d_prediction, float* loss,
                          std::int64_t count, float loss_scale, DType dtype) override {
    cpu::mean_squared_error(prediction, target, d_prediction, loss, count, loss_scale, dtype);
  }
  void add_bias(std::byte* y, const std::byte* bias, std::int64_t rows, std::int64_t width, DType dtype) override {
    cpu::add_bias(y, bias, rows, width, dtype);
  }
  void bias_backward(const std::byte* d_y, std::byte* d_bias, std::int64_t rows, std::int64_t width, DType dtype,
                     DType gradient_dtype) override {
    cpu::bias_backward(d_y, d_bias, rows, width, dtype, gradient_dtype, scratch_);
  }
  void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype) override {
    cpu::relu(x, y, count, dtype);
  }
  void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                     DType dtype) override {
    cpu::relu_backward(d_y, y, d_x, count, dtype);
  }
  void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype) override {
    cpu::add(x, residual, y, count, dtype);
  }
  void cast(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype, std::int64_t count,
            float factor) override {
    cpu::cast(source, source_dtype, target, target_dtype, count, factor);
  }
  void accumulate(const std::byte* source, DType source_dtype, float* target, std::int64_t count,
                  float factor) override {
    cpu::accumulate(source, source_dtype, target, count, factor);
  }
  void copy_runs(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
                 std::span<const CopyRun> runs) override {
    cpu::copy_runs(source, source_dtype, target, target_dtype, runs);
  }
  void quantize(const std::byte* source, DType dtype, std::byte* part, std::int64_t count, float factor,
                Quantization format) override {
    cpu::quantize(source, dtype, part, count, factor, format);
  }
  void dequantize(const QuantizedParts& parts, std::byte* target, DType dtype, std::span<const CopyRun> runs) override {
    cpu::dequantize(parts, target, dtype, runs);
  }
  void sum_quantized(const QuantizedParts& parts, int sources, float scale, std::byte* target, DType dtype) override {
    cpu::sum_quantized(parts, sources, scale, target, dtype);
  }
  void requantize_sum(const QuantizedParts& parts, int sources, std::byte* part) override {
    cpu::requantize_sum(parts, sources, part);
  }
  void fill_zero(std::byte* target, std::int64_t bytes) override {
    if (bytes > 0) std::memset(target, 0, static_cast<std::size_t>(bytes));
  }
  void upload(const void* source, std::byte* target, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
  }
  void download(const std::byte* source, void* target, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
  }
  void sum_of_squares(const Gradient& x, std::int64_t count, double factor, double* sum, bool overwrite) override {
    cpu::sum_of_squares(x, count, factor, sum, overwrite);
  }
  void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor) override {
    cpu::clip_factor(sums, count, max_norm, factor);
  }
  void sgd(float* parameter, const Gradient& gradient, std::int64_t count, float learning_rate, float weight_decay,
           const float* gradient_scale, std::byte* rounded) override {
    cpu::sgd(parameter, gradient, count, learning_rate, weight_decay, gradient_scale, rounded);
  }
  void adamw(float* parameter, const Gradient& gradient, float* first_moment, float* second_moment, std::int64_t count,
             const AdamWStep& step, std::byte* rounded) override {
    cpu::adamw(parameter, gradient, first_moment, second_moment, count, step, rounded);
  }
  void delay(std::int64_t nanoseconds) override { std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds)); }

 private:
  Matmul matmul_;
  Rotary rotary_;
  Embedding embedding_;
  std::vector<float> scratch_;
};

/// What treats each element by itself is shared by a crew. Sums of squares are not: their order is that of one thread.
class SharedCpuKernels final : public CpuKernels {
 public:
  explicit SharedCpuKernels(int threads) : crew_(threads) {}

  void cast(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype, std::int64_t count,
            float factor) override {
    crew_.share(count, [&](std::int64_t begin, std::int64_t end) {
      cpu::cast(source + begin * size_of(source_dtype), source_dtype, target + begin * size_of(target_dtype),
                target_dtype, end - begin, factor);
    });
  }
  void accumulate(const std::byte* source, DType source_dtype, float* target, std::int64_t count,
                  float factor) override {
    crew_.share(count, [&](std::int64_t begin, std::int64_t end) {
      cpu::accumulate(source + begin * size_of(source_dtype), source_dtype, target + begin, end - begin, factor);
    });
  }
  void upload(const void* source, std::byte* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void download(const std::byte* source, void* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void sgd(float* parameter, const Gradient& gradient, std::int64_t count, float learning_rate, float weight_decay,
           const float* gradient_scale, std::byte* rounded) override {
    crew_.share(count, [&](std::int64_t begin, std::int64_t end) {
      cpu::sgd(parameter + begin, gradient.from(begin), end - begin, learning_rate, weight_decay, gradient_scale,
               part_of(rounded, begin));
    });
  }
  void adamw(float* parameter, const Gradient& gradient, float* first_moment, float* second_moment, std::int64_t count,
             const AdamWStep& step, std::byte* rounded) override {
    crew_.share(count, [&](std::int64_t begin, std::int64_t end) {
      cpu::adamw(parameter + begin, gradient.from(begin), first_moment + begin, second_moment + begin, end - begin,
                 step, part_of(rounded, begin));
    });
  }

 private:
  static std::byte* part_of(std::byte* rounded, std::int64_t begin) {
    return rounded == nullptr ? nullptr : rounded + begin * size_of(DType::bf16);
  }
  void copy(const void* source, void* target, std::int64_t bytes) {
    crew_.share(bytes, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(static_cast<std::byte*>(target) + begin, static_cast<const std::byte*>(source) + begin,
                  static_cast<std::size_t>(end - begin));
    });
  }

  Crew crew_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels() { return std::make_unique<CpuKernels>(); }

std::unique_ptr<Kernels> make_shared_cpu_kernels(int threads) { return std::make_unique<SharedCpuKernels>(threads); }

}  // namespace fsdpbench::backend::cpu
