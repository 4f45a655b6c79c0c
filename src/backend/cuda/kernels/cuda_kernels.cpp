#include "backend/cuda/kernels/cuda_kernels.h"

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/cublaslt.h"
#include "backend/cuda/kernels/cudnn_graph.h"
#include "backend/cuda/kernels/gemms.h"
#include "backend/cuda/kernels/launchers.h"
#include "backend/cuda/kernels/scratch.h"
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
        gemms_(stream),
        attention_(stream, gemms_, arithmetic.deterministic) {}

  std::int64_t workspace_bytes() const override {
    return scratch_.bytes() + rotary_.bytes() + gemms_.workspace_bytes() + attention_.workspace_bytes();
  }
  void deliver_downloads() override { transfers_.deliver(); }

  void gemm(const Gemm& gemm) override { gemms_.run(gemm); }

  void rms_norm(const RmsNormCall& call) override { cuda::rms_norm(stream_, call); }
  void rms_norm_backward(const RmsNormBackwardCall& call) override { cuda::rms_norm_backward(stream_, call, scratch_); }
  void rotary(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse) override {
    rotary_(shape, q, k, theta, inverse);
  }
  void attention(const AttentionCall& call) override { attention_.forward(call); }
  void attention_backward(const AttentionBackwardCall& call) override { attention_.backward(call); }
  void swiglu(const SwigluCall& call) override { cuda::swiglu(stream_, call); }
  void swiglu_backward(const SwigluBackwardCall& call) override { cuda::swiglu_backward(stream_, call); }
  void embedding(const EmbeddingCall& call) override { cuda::embedding(stream_, call); }
  void embedding_backward(const EmbeddingBackwardCall& call) override {
    cuda::embedding_backward(stream_, call, scratch_);
  }
  void cross_entropy(const CrossEntropyCall& call) override { cuda::cross_entropy(stream_, call, scratch_); }
  void cross_entropy_terms(const CrossEntropyCall& call, float* terms) override {
    cuda::cross_entropy_terms(stream_, call, terms);
  }
  void cross_entropy_of_terms(const CrossEntropyCall& call, const float* terms, int parts) override {
    cuda::cross_entropy_of_terms(stream_, call, terms, parts, scratch_);
  }
  void mean_squared_error(const MeanSquaredErrorCall& call) override {
    cuda::mean_squared_error(stream_, call, scratch_);
  }
  void add_bias(const RowShape& shape, std::byte* y, const std::byte* bias) override {
    cuda::add_bias(stream_, shape, y, bias);
  }
  void bias_backward(const RowShape& shape, const std::byte* d_y, const Elements& d_bias) override {
    cuda::bias_backward(stream_, shape, d_y, d_bias, scratch_);
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
  void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor) override {
    cuda::cast(stream_, source, target, count, factor);
  }
  void accumulate(const ConstElements& source, float* target, std::int64_t count, float factor) override {
    cuda::accumulate(stream_, source, target, count, factor);
  }
  void copy_runs(const ConstElements& source, const Elements& target, std::span<const CopyRun> runs) override {
    cuda::copy_runs(stream_, source, target, runs);
  }
  void fill_zero(std::byte* target, std::int64_t bytes) override {
    if (bytes > 0) check(cudaMemsetAsync(target, 0, bytes, stream_), "fill_zero");
  }
  void upload(const void* source, std::byte* target, std::int64_t bytes) override {
    transfers_.upload(source, target, bytes);
  }
  void download(const std::byte* source, void* target, std::int64_t bytes) override {
    transfers_.download(source, target, bytes);
  }
  void sum_of_squares(const ConstElements& x, std::int64_t count, double factor, double* sum, bool overwrite) override {
    cuda::sum_of_squares(stream_, x, count, factor, sum, overwrite, scratch_);
  }
  void clip_factor(const double* sums, std::int64_t count, double max_norm, float* factor) override {
    cuda::clip_factor(stream_, sums, count, max_norm, factor);
  }
  void sgd(const ParameterUpdate& update, const SgdStep& step) override { cuda::sgd(stream_, update, step); }
  void adamw(const ParameterUpdate& update, const AdamWStep& step) override { cuda::adamw(stream_, update, step); }
  void delay(std::int64_t nanoseconds) override { cuda::delay(stream_, nanoseconds); }

 private:
  cudaStream_t stream_;
  Scratch scratch_;
  Rotary rotary_;
  Transfers transfers_;
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
         " order; products by cuBLASLt's first algorithm for each shape";
}

std::string math_libraries() { return cublaslt_version() + ", " + cudnn_version(); }

}  // namespace fsdpbench::backend::cuda
