#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/cupti/cupti_generation.h"
#include "backend/cuda/cupti/record_table.h"

namespace fsdpbench::backend::cuda {

/// Memory that CUPTI gets.
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

  /// Number of times that the scratch buffer was handed out.
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

/// CUPTI of this process: hands it buffers, reads the full ones on one thread, and keeps the joined records for the
/// timers. CUPTI knows one set of callbacks a process, so only one collector may be started at a time; several ranks
/// of a process share it. Any thread.
///
/// CUPTI's callbacks only take a buffer out of the pool or put one into a queue: they hold no lock while they call
/// CUDA or CUPTI, because they call neither.
class Collector {
 public:
  Collector(const CuptiApi& api, const BufferLimits& limits);
  /// Must be stopped. CUPTI may still bring buffers later; they are then dropped.
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  /// Switches recording on: subscriber, clock, callbacks, kinds, in this order. Returns "" or one sentence that says
  /// why it cannot be; then nothing is on.
  std::string start();
  /// Switches recording off and takes what is still there, incomplete or not. The streams should be idle.
  void stop();

  /// The calling thread issues ops from now on.
  static void expect_ops_of_this_thread();
  /// Brings in everything that is complete: returns when it is in the table.
  void flush();

  /// 1, 2, 3 …: by it the records of a timer's ops are found.
  std::uint32_t new_timer_number();
  RecordTable& table() { return table_; }
  const CuptiApi& api() const { return api_; }

  struct Losses {
    std::int64_t dropped_by_cupti = 0;  ///< records for which it had no room
    std::int64_t shortages = 0;         ///< buffers asked for when all were out; what they held is lost
    std::int64_t lost_bytes = 0;        ///< that they held
  };
  /// Since the start.
  Losses losses() const;
  /// A sentence for each thing that this CUPTI does not do as wished; nothing of it spoils figures.
  const std::vector<std::string>& notes() const { return notes_; }
  /// For tests.
  const BufferPool& pool() const { return pool_; }
  std::thread::id reader() const { return reader_.get_id(); }

 private:
  struct Filled {
    std::uint8_t* data = nullptr;
    std::size_t bytes = 0;
  };
  static void on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records);
  static void on_complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid);

  /// Does what CUPTI wants once per process before it may call back; "" or why it cannot be.
  std::string prepare();
  std::string switch_on();
  void leave_out_unwanted_calls();
  void switch_off();
  void push(Filled filled);
  void read();
  void drain();

  const CuptiApi api_;
  BufferPool pool_;
  RecordTable table_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool prepared_ = false;
  bool told_of_unwanted_ = false;
  std::vector<std::string> notes_;
  bool on_ = false;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Filled> queue_;
  std::uint64_t pushed_ = 0;
  std::uint64_t done_ = 0;
  bool ending_ = false;
  std::uint32_t timers_ = 0;
  Losses losses_;
  std::thread reader_;
};

}  // namespace fsdpbench::backend::cuda
