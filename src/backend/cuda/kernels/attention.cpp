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

void Attention::forward(const AttentionCall& call) {
  if (paths_->cudnn_.takes(call.shape)) {
    paths_->cudnn_.forward(call);
  } else {
    attention_fallback(paths_->stream_, paths_->gemms_, call);
  }
}

void Attention::backward(const AttentionBackwardCall& call) {
  if (paths_->cudnn_.takes(call.shape)) {
    paths_->cudnn_.backward(call);
  } else {
    attention_fallback_backward(paths_->stream_, paths_->gemms_, call);
  }
}

std::int64_t Attention::workspace_bytes() const { return paths_->cudnn_.workspace_bytes(); }

}  // namespace fsdpbench::backend::cuda
