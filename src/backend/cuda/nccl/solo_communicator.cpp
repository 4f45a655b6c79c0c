#include "backend/cuda/nccl/solo_communicator.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>

#include "backend/cuda/check.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

void SoloCommunicator::enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) {
  check_root(call, 1);
  check_equal_parts(call);
  if (call.scale != 1.0F && call.dtype != DType::f32 && call.dtype != DType::bf16) {
    throw std::logic_error("Communicator: only sums of fp32 and bf16 are scaled");
  }
  const auto work = [&](cudaStream_t stream) {
    if (call.count == 0) return;
    if (call.scale != 1.0F) {
      lanes_.kernels(lane).cast({call.input, call.dtype}, {call.output, call.dtype}, call.count, call.scale);
    } else if (call.input != call.output) {
      const auto bytes = static_cast<std::size_t>(call.count * size_of(call.dtype));
      check(cudaMemcpyAsync(call.output, call.input, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    }
  };
  lanes_.run_op(lane, to_string(call.kind).data(), work, stamp);
}

std::unique_ptr<Communicator> SoloCommunicator::split(int /*color*/, int /*key*/) {
  return std::make_unique<SoloCommunicator>(lanes_);
}

}  // namespace fsdpbench::backend::cuda
