// A build without cuDNN: all attention takes the other path.

#include <stdexcept>

#include "backend/cuda/kernels/cudnn_graph.h"

namespace fsdpbench::backend::cuda {

class CudnnAttention::Plans {};

CudnnAttention::CudnnAttention(cudaStream_t, bool) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::takes(const AttentionShape&) const { return false; }

void CudnnAttention::forward(const AttentionCall&) {
  throw std::logic_error("attention without cuDNN was sent to cuDNN");
}

void CudnnAttention::backward(const AttentionBackwardCall&) {
  throw std::logic_error("attention without cuDNN was sent to cuDNN");
}

std::int64_t CudnnAttention::workspace_bytes() const { return 0; }

std::string cudnn_version() { return "no cuDNN"; }

}  // namespace fsdpbench::backend::cuda
