#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

/// Object behind a cudaMemPool_t: memory that streams take and give back in their order, as the CUDA C++ Programming
/// Guide has it ("Stream Ordered Memory Allocator"). It takes chunks of whole granules from the GPU and keeps them; a
/// block is a piece of a chunk. What was freed on one stream goes to another only if the attributes of the pool allow
/// it: after an event that the other waited for (reuse follows event dependencies), when it is done (opportunistic),
/// with a wait put in between (internal dependencies), and always once the host has waited for the free. At such a wait
/// it gives back whole free chunks beyond its release threshold.
///
/// Where the Guide is silent, it is made up: a granule is 2 MiB, the tightest place is taken, a block never spans
/// chunks. Nothing here is thread-safe.
struct CUmemPoolHandle_st {
 public:
  /// Bytes that the GPU still has for pools: asked before a chunk is taken.
  using MayGrow = bool (*)(int device, std::int64_t bytes);

  CUmemPoolHandle_st() = default;
  CUmemPoolHandle_st(int owner, MayGrow may_grow) : device(owner), may_grow_(may_grow) {}
  ~CUmemPoolHandle_st();
  CUmemPoolHandle_st(const CUmemPoolHandle_st&) = delete;
  CUmemPoolHandle_st& operator=(const CUmemPoolHandle_st&) = delete;

  /// Null if there is none and the GPU has no more.
  std::byte* take(std::int64_t bytes, cudaStream_t stream);
  void give_back(std::byte* block, cudaStream_t stream);
  /// The host has waited for something.
  void host_waited();
  /// Gives whole free chunks back to the GPU while more than `bytes` are reserved.
  void trim_to(std::int64_t bytes);

  int device = 0;
  std::map<cudaMemPoolAttr, std::uint64_t> attributes{{cudaMemPoolReuseFollowEventDependencies, 1},
                                                      {cudaMemPoolReuseAllowOpportunistic, 1},
                                                      {cudaMemPoolReuseAllowInternalDependencies, 1},
                                                      {cudaMemPoolAttrReleaseThreshold, 0}};
  std::set<int> shared_with;
  std::int64_t used = 0, used_high = 0;
  std::int64_t reserved = 0, reserved_high = 0;

 private:
  /// A part of a chunk. Parts that were freed apart stay apart until they are taken together.
  struct Part {
    std::int64_t bytes = 0;
    bool free = false;
    std::uint64_t stream = 0;  ///< that freed it; 0: never used
    std::int64_t mark = 0;     ///< of the free, see order.h
    std::shared_ptr<std::atomic<bool>> done = {};
  };
  struct Chunk {
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;
    std::map<std::int64_t, Part> parts;  ///< by offset
  };
  enum class Allowed { no, yes, after_a_wait };

  Allowed allowed(const Part& part, std::uint64_t stream) const;
  std::byte* carve(Chunk& chunk, std::int64_t offset, std::int64_t bytes, cudaStream_t stream);
  std::byte* find(std::int64_t bytes, cudaStream_t stream, bool with_waits);
  bool is_on(cudaMemPoolAttr attribute) const;

  MayGrow may_grow_ = nullptr;
  std::vector<Chunk> chunks_;
};
