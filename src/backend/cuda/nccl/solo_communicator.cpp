#include "backend/cuda/nccl/solo_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <stdexcept>

#include "backend/cuda/check.h"
#include "backend/kernels.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

void SoloCommunicator::copy(Collective kind, Lane lane, const std::byte* input, std::byte* output, std::int64_t count,
                            DType dtype, float scale, Stamp* stamp) {
  if (scale != 1.0F && dtype != DType::f32 && dtype != DType::bf16) {
    throw std::logic_error("Communicator: only sums of fp32 and bf16 are scaled");
  }
  const auto work = [&](cudaStream_t stream) {
    if (count == 0) return;
    if (scale != 1.0F) {
      lanes_.kernels(lane).cast(input, dtype, output, dtype, count, scale);
    } else if (input != output) {
      const auto bytes = static_cast<std::size_t>(count * size_of(dtype));
      check(cudaMemcpyAsync(output, input, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    }
  };
  lanes_.run_op(lane, to_string(kind).data(), work, stamp);
}

void SoloCommunicator::all_gather(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                                  Stamp* stamp) {
  copy(Collective::all_gather, lane, input, output, count, dtype, 1.0F, stamp);
}

void SoloCommunicator::reduce_scatter(Lane lane, const std::byte* input, std::byte* output, std::int64_t count,
                                      DType dtype, float scale, Stamp* stamp) {
  copy(Collective::reduce_scatter, lane, input, output, count, dtype, scale, stamp);
}

void SoloCommunicator::all_reduce(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, float scale,
                                  Stamp* stamp) {
  copy(Collective::all_reduce, lane, buffer, buffer, count, dtype, scale, stamp);
}

void SoloCommunicator::broadcast(Lane lane, std::byte* buffer, std::int64_t count, DType dtype, int root,
                                 Stamp* stamp) {
  if (root != 0) throw BackendError(fmt::format("broadcast from rank {} of a group of 1", root));
  copy(Collective::broadcast, lane, buffer, buffer, count, dtype, 1.0F, stamp);
}

void SoloCommunicator::all_to_all(Lane lane, const std::byte* input, std::byte* output, std::int64_t count, DType dtype,
                                  Stamp* stamp) {
  copy(Collective::all_to_all, lane, input, output, count, dtype, 1.0F, stamp);
}

std::unique_ptr<Communicator> SoloCommunicator::split(int /*color*/, int /*key*/) {
  return std::make_unique<SoloCommunicator>(lanes_);
}

}  // namespace fsdpbench::backend::cuda
