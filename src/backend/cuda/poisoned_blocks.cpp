#include "backend/cuda/poisoned_blocks.h"

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {

void PoisonedBlocks::fill(std::byte* memory, std::int64_t bytes, Lane lane) {
  std::erase_if(fillings_, [&](const Filling& f) {
    if (cudaEventQuery(f.done) != cudaSuccess) return false;
    events_.give_back(f.done);
    return true;
  });
  // All bits set is a NaN in fp32 and in bf16.
  check(cudaMemsetAsync(memory, 0xFF, static_cast<std::size_t>(bytes), streams_[lane]), "poisoning memory");
  fillings_.push_back({memory, memory + bytes, events_.take()});
  check(cudaEventRecord(fillings_.back().done, streams_[lane]), "recording an event");
}

void PoisonedBlocks::wait(Lane lane, const std::byte* memory, std::int64_t bytes) {
  for (const Filling& f : fillings_) {
    if (f.begin < memory + bytes && memory < f.end) {
      check(cudaStreamWaitEvent(streams_[lane], f.done, 0), "waiting for an event");
    }
  }
}

}  // namespace fsdpbench::backend::cuda
