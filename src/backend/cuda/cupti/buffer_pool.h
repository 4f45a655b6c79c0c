#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace fsdpbench::backend::cuda {

/// How much memory CUPTI gets.
struct BufferLimits {
  std::size_t large_bytes = std::size_t{4} << 20;  ///< NVIDIA advises 1 to 10 MB
  std::size_t large_count = 32;
  std::size_t small_bytes = std::size_t{64} << 10;
  std::size_t small_count = 512;
};

/// The buffers that CUPTI fills, all made at once and never more of them. CUPTI has buffers by thread: large ones are
/// for threads that issue ops; small ones for the others, such as those that NCCL makes for every collective, each of
/// which keeps a buffer for a record or two. When all are out there is the scratch buffer, which any number may have
/// at once because nobody reads it: CUPTI may crash if it gets none, and with ever more the memory would run away.
///
/// Buffers come zeroed. Any thread.
class BufferPool {
 public:
  explicit BufferPool(const BufferLimits& limits);

  struct Buffer {
    std::uint8_t* data = nullptr;
    std::size_t bytes = 0;
  };
  /// Never null. 16-byte aligned.
  Buffer take(bool large);
  bool is_scratch(const std::uint8_t* data) const { return data == scratch_.get(); }
  /// For the next to take. Zeroes it, so it takes its time: for the thread that reads, not for CUPTI's.
  void give_back(std::uint8_t* data);

  /// How often the scratch buffer was handed out.
  std::int64_t shortages() const;
  std::size_t in_use() const;

 private:
  struct Free {
    void operator()(std::uint8_t* data) const;
  };
  using Memory = std::unique_ptr<std::uint8_t[], Free>;
  static Memory make(std::size_t bytes);
  bool is_large(const std::uint8_t* data) const;

  BufferLimits limits_;
  Memory large_, small_, scratch_;  // one block a class
  mutable std::mutex mutex_;
  std::vector<std::uint8_t*> free_large_, free_small_;
  std::int64_t shortages_ = 0;
};

}  // namespace fsdpbench::backend::cuda
