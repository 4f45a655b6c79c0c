#include "backend/cuda/pool_memory.h"

#include <fmt/format.h>

#include <limits>

#include "backend/cuda/check.h"
#include "backend/cuda/gpu.h"
#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "creating a memory pool");
  return pool;
}

template <class Value>
void set(cudaMemPool_t pool, cudaMemPoolAttr attribute, Value value) {
  check(cudaMemPoolSetAttribute(pool, attribute, &value), "setting up a memory pool");
}

void share(cudaMemPool_t pool, int owner, int gpus) {
  for (int gpu = 0; gpu < gpus; ++gpu) {
    if (gpu == owner) continue;
    int reaches = 0;
    check(cudaDeviceCanAccessPeer(&reaches, gpu, owner), "whether one GPU reaches another's memory");
    if (reaches == 0) continue;  // then NCCL does not try either
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = gpu;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    check(cudaMemPoolSetAccess(pool, &access, 1), "sharing a memory pool with another GPU");
  }
}

}  // namespace

PoolMemory::PoolMemory(const LaneStreams& streams, std::int64_t expected, bool poison, int gpus)
    : streams_(streams), expected_(expected), poison_(poison), pool_(make_pool(current_gpu())) {
  share(pool_, current_gpu(), gpus);
  set(pool_, cudaMemPoolReuseFollowEventDependencies, 1);
  set(pool_, cudaMemPoolReuseAllowOpportunistic, 0);
  set(pool_, cudaMemPoolReuseAllowInternalDependencies, 0);
  set(pool_, cudaMemPoolAttrReleaseThreshold, std::numeric_limits<std::uint64_t>::max());
  if (expected == 0) return;
  std::byte* const all = allocate(0, {}, expected, Lane::compute);
  if (all == nullptr) {
    cudaMemPoolDestroy(pool_);
    throw ResourceError(fmt::format("the GPU has not the {} of memory that this run needs", format_bytes(expected)));
  }
  check(cudaFreeAsync(all, streams_[Lane::compute]), "freeing memory");
  check(cudaStreamSynchronize(streams_[Lane::compute]), "setting memory aside");
  set(pool_, cudaMemPoolAttrUsedMemHigh, std::uint64_t{0});
}

PoolMemory::~PoolMemory() { cudaMemPoolDestroy(pool_); }

std::byte* PoolMemory::allocate(std::int64_t /*offset*/, const LanePool::CategoryPlace& /*place*/, std::int64_t bytes,
                                Lane lane) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&memory, static_cast<std::size_t>(bytes), pool_, streams_[lane]);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // told by the null; nobody else shall find it
    return nullptr;
  }
  check(status, "cudaMallocFromPoolAsync");
  return static_cast<std::byte*>(memory);
}

void PoolMemory::free(std::byte* memory, std::int64_t bytes, Lane lane) {
  // All bits set is a NaN in fp32 and in bf16.
  if (poison_)
    check(cudaMemsetAsync(memory, 0xFF, static_cast<std::size_t>(bytes), streams_[lane]), "poisoning memory");
  check(cudaFreeAsync(memory, streams_[lane]), "cudaFreeAsync");
}

std::int64_t PoolMemory::attribute(cudaMemPoolAttr attribute) const {
  std::uint64_t value = 0;
  check(cudaMemPoolGetAttribute(pool_, attribute, &value), "asking a memory pool");
  return static_cast<std::int64_t>(value);
}

Facts PoolMemory::facts() const {
  return {{"pool used at most", format_bytes(attribute(cudaMemPoolAttrUsedMemHigh))},
          {"pool reserved at most",
           fmt::format("{}, {} of it before the first op", format_bytes(attribute(cudaMemPoolAttrReservedMemHigh)),
                       format_bytes(expected_))}};
}

}  // namespace fsdpbench::backend::cuda
