#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/lane.h"
#include "clock/op_times.h"
#include "schedule/training.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// Device memory as PyTorch's CUDA caching allocator hands it out, with its default settings or with expandable
/// segments: pure bookkeeping, on any clock. (c10/cuda/CUDACachingAllocator.cpp; a largest size to split and garbage
/// collection are off by default.) What base/lane_pool.h decides by the order of ops, this one decides by the time at
/// which the host asks:
///
/// - A block is of 512 bytes, or a multiple; an empty tensor has none. Up to 1 MiB is cut from segments of 2 MiB, up to
///   10 MiB from segments of 20 MiB; whatever is larger has a segment of its own, of a multiple of 2 MiB.
/// - A segment belongs to the stream that it was allocated on, for good. A request gets the smallest free block of its
///   own stream that is large enough. The rest is split off if it is at least 512 bytes (small blocks), or more than
///   1 MiB (large ones). Free neighbours are merged.
/// - A block that another stream used (`record_stream`) is free once an event of that stream has passed, and the
///   allocator asks that only when memory is allocated.
/// - Where the device has no more memory, the host waits for all events, segments that are wholly free are returned to
///   the driver, and the request is tried again.
///
/// With expandable segments (`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`) a stream has one segment for small and
/// one for large blocks, of addresses without memory. Memory is mapped into it as it is needed, in pages of 2 MiB
/// (small) or 20 MiB (large), at the lowest address where the request fits; every rest of 512 bytes is split off; and
/// where the device is full, all whole pages that are free are unmapped.
class CachingAllocator {
 public:
  using BlockId = int;

  /// Bytes; the peaks are since the beginning.
  struct Statistics {
    std::int64_t allocated = 0;       ///< blocks that the program holds
    std::int64_t reserved = 0;        ///< segments
    std::int64_t peak_allocated = 0;  ///< torch.cuda.max_memory_allocated()
    std::int64_t peak_reserved = 0;   ///< torch.cuda.max_memory_reserved()
    std::int64_t retries = 0;         ///< requests for which cached memory went back to the driver
    std::int64_t failures = 0;        ///< requests that found no memory even then; they are served all the same
    CategoryBytes at_peak{};          ///< of allocator_walk: what was allocated at peak_allocated
    bool operator==(const Statistics&) const = default;
  };

  /// `capacity`: bytes that the driver has for segments; 0: no limit. `expandable`: expandable_segments:True.
  explicit CachingAllocator(std::int64_t capacity = 0, bool expandable = false)
      : capacity_(capacity), expandable_(expandable) {}

  /// A block of at least `bytes` >= 0 for `stream`, asked for at `now_ns`, no earlier than anything before. 0 bytes
  /// have no block: what is returned can only be given to free() and free_after(), which then do nothing.
  BlockId allocate(std::int64_t bytes, Lane stream, double now_ns);
  /// The program gives the block back; its own stream may reuse it at once.
  void free(BlockId block);
  /// Frees a block after `record_stream`: other streams may be using it until `passed_ns`.
  void free_after(BlockId block, double passed_ns);

  const Statistics& statistics() const { return statistics_; }

 private:
  static constexpr int kNone = -1;
  struct Block {
    Lane stream = Lane::compute;
    bool small = false;
    bool in_use = false;  ///< allocated, or an event has not passed
    bool mapped = true;   ///< false: addresses of an expandable segment without memory
    std::int64_t address = 0;
    std::int64_t bytes = 0;
    int previous = kNone;  ///< neighbours in the segment
    int next = kNone;
    bool is_split() const { return previous != kNone || next != kNone; }
  };
  /// Free blocks in the order in which they are looked for.
  using Free = std::set<std::tuple<Lane, std::int64_t, std::int64_t, int>>;  // stream, bytes, address, block
  using Unmapped = std::set<std::tuple<Lane, std::int64_t, int>>;            // stream, address, block

  Block& at(int block) { return blocks_[block]; }
  Free& free_blocks(bool small) { return free_[small ? 0 : 1]; }
  Unmapped& unmapped_blocks(bool small) { return unmapped_[small ? 0 : 1]; }
  void list(int block);
  void unlist(int block);
  int new_block(const Block& block);
  int find_free(std::int64_t size, bool small, Lane stream);
  bool is_room(std::int64_t bytes) const { return capacity_ == 0 || statistics_.reserved + bytes <= capacity_; }
  void reserve(std::int64_t bytes);
  int new_segment(std::int64_t size, bool small, Lane stream);
  int grow_segment(std::int64_t size, bool small, Lane stream);
  std::optional<int> try_to_grow(std::int64_t size, bool small, Lane stream, bool beyond_capacity);
  int place_to_grow(std::int64_t size, bool small, Lane stream);
  bool is_room_from(int block, std::int64_t size) const;
  std::int64_t grown_bytes(int block) const;
  bool map(int block, std::int64_t size, bool beyond_capacity);
  void unmap(int block);
  int split_off(int block, std::int64_t size);
  void merge(int block, int neighbour);
  void make_free(int block);
  void take_back(double now_ns);
  void return_segments();

  std::int64_t capacity_;
  bool expandable_;
  Statistics statistics_;
  std::vector<Block> blocks_;  // all that ever were: a walk is of few steps
  std::array<Free, 2> free_;
  std::array<Unmapped, 2> unmapped_;
  /// Blocks by the time at which their events have passed.
  using Pending = std::pair<double, int>;
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> pending_;
  std::int64_t next_address_ = 0;  // of segments that cannot be expanded
};

/// Blocks that a framework asks for beside a schedule's buffers, and those that it asks for otherwise.
struct FrameworkBlocks {
  std::int64_t libraries = 0;  ///< workspaces, from the beginning
  std::int64_t buckets = 0;    ///< of reductions, likewise
  bool autograd = false;       ///< gradients come when what they are computed of has been freed
  std::int64_t piece = 0;      ///< an eager loss: fp32 logits; workspaces that are larger are several tensors; else 0
  int head = -1;               ///< the module that has the loss
  std::int64_t embedding = 0;  ///< bytes of its gradients, if one unit has it and the head; else 0
  std::int64_t update = 0;     ///< temporaries of an optimizer that is not one kernel
  bool operator==(const FrameworkBlocks&) const = default;
};

/// Figures of PyTorch's caching allocator on a rank that issues these schedules' allocations and frees at the
/// recorded times. A buffer belongs to the stream of the op that allocates it. Where an op of another lane frees it, as
/// FSDP1 does with `record_stream`, it may be reused once the lane has come past that op, if the host asks after that.
/// `records`: of whole consecutive steps, the first of which is step `first`. `capacity`, `expandable`: as
/// CachingAllocator's. `framework`: none for this engine.
CachingAllocator::Statistics allocator_walk(const schedule::Schedules& schedules,
                                            std::span<const trace::Record> records, std::size_t first,
                                            std::int64_t capacity = 0, bool expandable = false,
                                            const FrameworkBlocks& framework = {});

/// The blocks of the framework that a training imitates, whose libraries take `workspace_bytes`; none for this engine.
FrameworkBlocks framework_blocks(const schedule::Training& training, std::int64_t workspace_bytes);

/// Statistics for rank 0 of a training whose ops take `times`: its first steps and two of the steady state, with
/// simulate.expandable_segments or without.
CachingAllocator::Statistics allocator_forecast(const schedule::Training& training, const OpTimes& times,
                                                std::int64_t capacity = 0);

}  // namespace fsdpbench::clock
