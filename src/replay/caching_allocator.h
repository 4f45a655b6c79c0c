#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/lane.h"

namespace fsdpbench::replay {

/// Device memory as PyTorch's CUDA caching allocator hands it out, with its default settings: pure bookkeeping, on any
/// clock. (c10/cuda/CUDACachingAllocator.cpp; expandable segments, a largest size to split and garbage collection are
/// off by default.) What base/lane_pool.h decides by the order of ops, this one decides by the time at which the host
/// asks:
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
    bool operator==(const Statistics&) const = default;
  };

  /// `capacity`: bytes that the driver has for segments; 0: no limit.
  explicit CachingAllocator(std::int64_t capacity = 0) : capacity_(capacity) {}

  /// A block of at least `bytes` >= 0 for `stream`, asked for at `now_ns`, no earlier than anything before. 0 bytes
  /// have no block: what is returned can only be given to free() and free_after(), which then do nothing.
  BlockId allocate(std::int64_t bytes, Lane stream, double now_ns);
  /// The program gives the block back; its own stream may reuse it at once.
  void free(BlockId block);
  /// The same after `record_stream`: other streams may be using it until `passed_ns`.
  void free_after(BlockId block, double passed_ns);

  const Statistics& statistics() const { return statistics_; }

 private:
  static constexpr int kNone = -1;
  struct Block {
    Lane stream = Lane::compute;
    bool small = false;
    bool in_use = false;  ///< allocated, or an event has not passed
    std::int64_t address = 0;
    std::int64_t bytes = 0;
    int previous = kNone;  ///< neighbours in the segment
    int next = kNone;
    bool is_split() const { return previous != kNone || next != kNone; }
  };
  /// Free blocks in the order in which they are looked for.
  using Free = std::set<std::tuple<Lane, std::int64_t, std::int64_t, int>>;  // stream, bytes, address, block

  Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  Free& free_blocks(bool small) { return free_[small ? 0 : 1]; }
  void list(int block);
  void unlist(int block);
  int new_block(const Block& block);
  int find_free(std::int64_t size, bool small, Lane stream);
  int new_segment(std::int64_t size, bool small, Lane stream);
  void split(int block, std::int64_t size);
  void merge(int block, int neighbour);
  void make_free(int block);
  void take_back(double now_ns);
  void return_segments();

  std::int64_t capacity_;
  Statistics statistics_;
  std::vector<Block> blocks_;
  std::vector<int> unused_;  // numbers of blocks_ that are none
  std::array<Free, 2> free_;
  /// Blocks by the time at which their events have passed.
  using Pending = std::pair<double, int>;
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> pending_;
  std::int64_t next_address_ = 0;
};

}  // namespace fsdpbench::replay
