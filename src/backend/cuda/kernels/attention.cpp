#include "backend/cuda/kernels/attention.h"

#include "backend/cuda/kernels/attention_cudnn.h"
#include "backend/cuda/kernels/attention_fallback.h"

namespace fsdpbench::backend::cuda {

class Attention::Paths {
 public:
  Paths(cudaStream_t stream, Gemms& gemms, bool deterministic)
      : stream_(stream), gemms_(gemms), cudnn_(stream, deterministic) {}

  cudaStream_t stream_;
  Gemms& gemms_;
  CudnnAttention cudnn_;
};

Attention::Attention(cudaStream_t stream, Gemms& gemms, bool deterministic)
    : paths_(std::make_unique<Paths>(stream, gemms, deterministic)) {}
Attention::~Attention() = default;

void Attention::forward(const AttentionShape& shape, const std::byte* q, const std::byte* k, const std::byte* v,
                        std::byte* out, float* log_sum_exp, std::byte* scratch) {
  if (paths_->cudnn_.takes(shape)) {
    paths_->cudnn_.forward(shape, q, k, v, out, log_sum_exp);
  } else {
    attention_fallback(paths_->stream_, paths_->gemms_, shape, q, k, v, out, log_sum_exp, scratch);
  }
}

void Attention::backward(const AttentionShape& shape, const std::byte* d_out, const std::byte* q, const std::byte* k,
                         const std::byte* v, const std::byte* out, const float* log_sum_exp, std::byte* d_q,
                         std::byte* d_k, std::byte* d_v, std::byte* scratch) {
  if (paths_->cudnn_.takes(shape)) {
    paths_->cudnn_.backward(shape, d_out, q, k, v, out, log_sum_exp, d_q, d_k, d_v);
  } else {
    attention_fallback_backward(paths_->stream_, paths_->gemms_, shape, d_out, q, k, v, out, log_sum_exp, d_q, d_k, d_v,
                                scratch);
  }
}

std::int64_t Attention::workspace_bytes() const { return paths_->cudnn_.workspace_bytes(); }

}  // namespace fsdpbench::backend::cuda
