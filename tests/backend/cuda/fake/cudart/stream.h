#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "backend/cuda/fake/cudart/order.h"
#include "backend/cuda/fake/fake_stream.h"

namespace fake {

/// An in-order queue with a thread of its own. Destroying the stream lets the thread finish its work; it owns the
/// queue then. Thread-safe.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  static std::shared_ptr<Stream> start(int device, int priority);

  std::uint64_t push(std::function<void()> work, const WorkLabel& label);
  bool idle() const;
  void wait_idle() const;
  /// Nothing is pushed any more.
  void close();

  int device() const { return device_; }
  int priority() const { return priority_; }
  std::uint64_t id() const { return id_; }

 private:
  struct Item {
    std::function<void()> work;
    FinishedWork facts;
  };
  Stream(int device, int priority);
  void run();

  const int device_;
  const int priority_;
  const std::uint64_t id_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;
  bool closed_ = false;
};

/// The stream behind CUDA's handle; null: the default stream of the calling thread's GPU.
Stream& stream_of(cudaStream_t handle);
/// To be called when the host has waited for `marks`: pools may hand on what was freed before them.
void pools_see_host_wait(const Marks& marks);
/// Waits for all streams of `device`, the destroyed ones that still work included.
void wait_for_device(int device);

}  // namespace fake
