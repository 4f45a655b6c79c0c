#include "backend/cuda/kernels/cuda_kernels.h"

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/attention_cudnn.h"
#include "backend/cuda/kernels/convert.h"
#include "backend/cuda/kernels/copy.h"
#include "backend/cuda/kernels/cublaslt.h"
#include "backend/cuda/kernels/delay.h"
#include "backend/cuda/kernels/embedding.h"
#include "backend/cuda/kernels/gemms.h"
#include "backend/cuda/kernels/launch_data.h"
#include "backend/cuda/kernels/linear.h"
#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/kernels/norm.h"
#include "backend/cuda/kernels/optimizer.h"
#include "backend/cuda/kernels/quantize.h"
#include "backend/cuda/kernels/rotary.h"
#include "backend/cuda/kernels/scratch.h"
#include "backend/cuda/kernels/swiglu.h"
#include "backend/cuda/kernels/transfers.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

/// Gathers the kernels of this folder, with what they keep between calls.
class CudaKernels final : public StreamKernels {
 public:
  CudaKernels(cudaStream_t stream, const Arithmetic& arithmetic, const std::function<void()>& while_waiting,
              const PinnedRanges* pinned)
      : stream_(stream),
        scratch_(stream),
        rotary_(stream),
        transfers_(stream, while_waiting, pinned),
        launch_data_(stream),
        gemms_(stream, {.fastest = arithmetic.fastest_products, .while_waiting = while_waiting}),
        attention_(stream, gemms_, arithmetic.deterministic) {}

  std::int64_t workspace_bytes() const override {
    return scratch_.bytes() + rotary_.bytes() + gemms_.workspace_bytes() + attention_.workspace_bytes();
  }
  void deliver_downloads() override { transfers_.deliver(); }
  void begin_capture(std::int32_t graph) override { launch_data_.begin(graph); }
  void end_capture() override { launch_data_.end(); }
  void before_launch(std::int32_t graph) override { launch_data_.fill(graph); }

  void gemm(const Gemm& gemm) override { gemms_.run(gemm); }

  void rms_norm(const std::byte* x, const std::byte* weight, std::byte* y, float* rstd, std::int64_t rows,
                std::int64_t width, float epsilon, DType dtype) override {
    cuda::rms_norm(stream_, x, weight, y, rstd, rows, width, epsilon, dtype);
  }
  void rms_norm_backward(const std::byte* d_y, const std::byte* x, const std::byte* weight, const float* rstd,
                         std::byte* d_x, std::byte* d_weight, std::int64_t rows, std::int64_t width, DType dtype,
                         DType gradient_dtype, std::byte* y) override {
    cuda::rms_norm_backward(stream_, d_y, x, weight, rstd, d_x, d_weight, rows, width, dtype, gradient_dtype, y,
                            scratch_);
  }
  void rotary(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse) override {
    rotary_(shape, q, k, theta, inverse);
  }
  void attention(const AttentionShape& shape, const std::byte* q, const std::byte* k, const std::byte* v,
                 std::byte* out, float* log_sum_exp, std::byte* scratch) override {
    attention_.forward(shape, q, k, v, out, log_sum_exp, scratch);
  }
  void attention_backward(const AttentionShape& shape, const std::byte* d_out, const std::byte* q, const std::byte* k,
                          const std::byte* v, const std::byte* out, const float* log_sum_exp, std::byte* d_q,
                          std::byte* d_k, std::byte* d_v, std::byte* scratch) override {
    attention_.backward(shape, d_out, q, k, v, out, log_sum_exp, d_q, d_k, d_v, scratch);
  }
  void swiglu(const std::byte* gate, const std::byte* up, std::byte* y, std::int64_t rows, std::int64_t width,
              std::int64_t stride, DType dtype) override {
    cuda::swiglu(stream_, gate, up, y, rows, width, stride, dtype);
  }
  void swiglu_backward(const std::byte* d_y, const std::byte* gate, const std::byte* up, std::byte* d_gate,
                       std::byte* d_up, std::int64_t rows, std::int64_t width, std::int64_t stride, DType dtype,
                       std::byte* y) override {
    cuda::swiglu_backward(stream_, d_y, gate, up, d_gate, d_up, rows, width, stride, dtype, y);
  }
  void embedding(const std::byte* table, const std::int32_t* tokens, std::byte* y, std::int64_t count,
                 std::int64_t vocab, std::int64_t width, DType dtype) override {
    cuda::embedding(stream_, table, tokens, y, count, {0, vocab, vocab}, width, dtype);
  }
  void embedding_backward(const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table, std::int64_t count,
                          std::int64_t vocab, std::int64_t width, bool overwrite, DType dtype,
                          DType gradient_dtype) override {
    cuda::embedding_backward(stream_, d_y, tokens, d_table, count, {0, vocab, vocab}, width, overwrite, dtype,
                             gradient_dtype, scratch_);
  }
  void cross_entropy(std::byte* logits, const std::int32_t* targets, float* loss, std::int64_t rows, std::int64_t vocab,
                     std::int64_t stride, float loss_scale, DType dtype) override {
    cuda::cross_entropy(stream_, logits, targets, loss, rows, vocab, stride, loss_scale, dtype, scratch_);
  }
  void embedding_part(const std::byte* table, const std::int32_t* tokens, std::byte* y, std::int64_t count,
                      const VocabularyPart& part, std::int64_t width, DType dtype) override {
    cuda::embedding(stream_, table, tokens, y, count, part, width, dtype);
  }
  void embedding_part_backward(const std::byte* d_y, const std::int32_t* tokens, std::byte* d_table, std::int64_t count,
                               const VocabularyPart& part, std::int64_t width, bool overwrite, DType dtype,
                               DType gradient_dtype) override {
    cuda::embedding_backward(stream_, d_y, tokens, d_table, count, part, width, overwrite, dtype, gradient_dtype,
                             scratch_);
  }
  void cross_entropy_terms(const std::byte* logits, const std::int32_t* targets, float* terms, std::int64_t rows,
                           const VocabularyPart& part, DType dtype) override {
    cuda::cross_entropy_terms(stream_, logits, targets, terms, rows, part, dtype);
  }
  void cross_entropy_of_terms(std::byte* logits, const std::int32_t* targets, const float* terms, int parts,
                              float* loss, std::int64_t rows, const VocabularyPart& part, float loss_scale,
                              DType dtype) override {
    cuda::cross_entropy_of_terms(stream_, logits, targets, terms, parts, loss, rows, part, loss_scale, dtype, scratch_);
  }
  void mean_squared_error(const std::byte* prediction, const float* target, std::byte* d_prediction, float* loss,
                          std::int64_t count, float loss_scale, DType dtype) override {
    cuda::mean_squared_error(stream_, prediction, target, d_prediction, loss, count, loss_scale, dtype, scratch_);
  }
  void add_bias(std::byte* y, const std::byte* bias, std::int64_t rows, std::int64_t width, DType dtype) override {
    cuda::add_bias(stream_, y, bias, rows, width, dtype);
  }
  void bias_backward(const std::byte* d_y, std::byte* d_bias, std::int64_t rows, std::int64_t width, DType dtype,
                     DType gradient_dtype) override {
    cuda::bias_backward(stream_, d_y, d_bias, rows, width, dtype, gradient_dtype, scratch_);
  }
  void relu(const std::byte* x, std::byte* y, std::int64_t count, DType dtype) override {
    cuda::relu(stream_, x, y, count, dtype);
  }
  void relu_backward(const std::byte* d_y, const std::byte* y, std::byte* d_x, std::int64_t count,
                     DType dtype) override {
    cuda::relu_backward(stream_, d_y, y, d_x, count, dtype);
  }
  void add(const std::byte* x, const std::byte* residual, std::byte* y, std::int64_t count, DType dtype) override {
    cuda::add(stream_, x, residual, y, count, dtype);
  }
  void cast(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype, std::int64_t count,
            float factor) override {
    cuda::cast(stream_, source, source_dtype, target, target_dtype, count, factor);
  }
  void accumulate(const std::byte* source, DType source_dtype, float* target, std::int64_t count,
                  float factor) override {
    cuda::accumulate(stream_, source, source_dtype, target, count, factor);
  }
  void copy_runs(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
                 std::span<const CopyRun> runs) override {
    cuda::copy_runs(stream_, source, source_dtype, target, target_dtype, runs);
  }
  void quantize(const std::byte* source, DType dtype, std::byte* part, std::int64_t count, float factor,
                Quantization format) override {
    cuda::quantize(stream_, source, dtype, part, count, factor, format);
  }
  void dequantize(const QuantizedParts& parts, std::byte* target, DType dtype, std::span<const CopyRun> runs) override {
    cuda::dequantize(stream_, parts, target, dtype, runs);
  }
  void sum_quantized(const QuantizedParts& parts, int sources, float scale, std::byte* target, DType dtype) override {
    cuda::sum_quantized(stream_, parts, sources, scale, target, dtype);
  }
  void requantize_sum(const QuantizedParts& parts, int sources, std::byte* part) override {
    cuda::requantize_sum(stream_, parts, sources, part);
  }
  void fill_zero(std::byte* target, std::int64_t bytes) override {
    if (bytes > 0) check(cudaMemsetAsync(target, 0, static_cast<std::size_t>(bytes), stream_), "fill_zero");
  }
  void upload(const void* source, std::byte* target, std::int64_t bytes) override {
    if (launch_data_.capturing()) return launch_data_.upload(source, target, bytes);
    transfers_.upload(source, target, bytes);
  }
  void download(const std::byte* source, void* target, std::int64_t bytes) override {
    if (launch_data_.capturing())
      throw BackendError("a download cannot be captured: the host would have to wait for it");
    transfers_.download(source, target, bytes);
  }
  void sum_of_squares(const Gradient& x, std::int64_t count, double factor, double* sum, bool overwrite) override {
    cuda::sum_of_squares(stream_, x, count, factor, sum, overwrite, scratch_);
  }
  void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor) override {
    cuda::clip_factor(stream_, sums, count, max_norm, factor);
  }
  void sgd(float* parameter, const Gradient& gradient, std::int64_t count, float learning_rate, float weight_decay,
           const float* gradient_scale, std::byte* rounded) override {
    cuda::sgd(stream_, parameter, gradient, count, learning_rate, weight_decay, gradient_scale, rounded);
  }
  void adamw(float* parameter, const Gradient& gradient, float* first_moment, float* second_moment, std::int64_t count,
             const AdamWStep& step, std::byte* rounded) override {
    const float* const corrections = launch_data_.capturing() ? launch_data_.corrections(step) : nullptr;
    cuda::adamw(stream_, parameter, gradient, first_moment, second_moment, count, step, corrections, rounded);
  }
  void delay(std::int64_t nanoseconds) override { cuda::delay(stream_, nanoseconds); }

 private:
  cudaStream_t stream_;
  Scratch scratch_;
  Rotary rotary_;
  Transfers transfers_;
  LaunchData launch_data_;
  Gemms gemms_;
  Attention attention_;
};

}  // namespace

std::unique_ptr<StreamKernels> make_cuda_kernels(cudaStream_t stream, const Arithmetic& arithmetic,
                                                 std::function<void()> while_waiting, const PinnedRanges* pinned) {
  return std::make_unique<CudaKernels>(stream, arithmetic, while_waiting, pinned);
}

std::string describe(const Arithmetic& arithmetic) {
  return std::string("attention's backward adds in ") + (arithmetic.deterministic ? "a fixed" : "any") +
         " order; products by cuBLASLt's " +
         (arithmetic.fastest_products ? "fastest algorithm for each shape, of its first eight, as timed in this run"
                                      : "first algorithm for each shape");
}

std::string math_libraries() { return cublaslt_version() + ", " + cudnn_version(); }

}  // namespace fsdpbench::backend::cuda
