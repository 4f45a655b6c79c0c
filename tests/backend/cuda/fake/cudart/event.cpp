#include <condition_variable>
#include <memory>
#include <mutex>

#include "backend/cuda/fake/cudart/device.h"
#include "backend/cuda/fake/cudart/faults.h"
#include "backend/cuda/fake/cudart/stream.h"
#include "base/clock.h"

namespace fake {
namespace {

/// One recording: done when its stream has come to it.
class Recording {
 public:
  void finish() {
    const std::lock_guard lock(mutex_);
    at_ns_ = fsdpbench::now_ns();
    done_ = true;
    changed_.notify_all();
  }
  bool done() const {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }
  Marks marks;  ///< all that comes before it

  std::int64_t at_ns() const {
    const std::lock_guard lock(mutex_);
    return at_ns_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::int64_t at_ns_ = 0;
};

}  // namespace
}  // namespace fake

/// Object behind a cudaEvent_t.
struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  mutable std::mutex mutex;
  std::shared_ptr<fake::Recording> latest;

  std::shared_ptr<fake::Recording> recording() const {
    const std::lock_guard lock(mutex);
    return latest;
  }
};

using namespace fake;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = fault(__func__)) return error;
  *event = new CUevent_st;
  (*event)->flags = flags;
  (*event)->device = current_device();
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  if (event->device != device_of(stream)) return failed(cudaErrorInvalidResourceHandle);
  auto recording = std::make_shared<Recording>();
  recording->marks = before(stream_of(stream).id());
  {
    const std::lock_guard lock(event->mutex);
    event->latest = recording;
  }
  run_on_stream(stream, [recording] { recording->finish(); }, {.kind = WorkKind::other});
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  if (const std::shared_ptr<Recording> recording = event->recording()) {
    run_on_stream(stream, [recording] { recording->wait(); }, {.kind = WorkKind::other});
    stream_waits(stream_of(stream).id(), recording->marks);
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = fault_on(__func__, event->device)) return error;
  const std::shared_ptr<Recording> recording = event->recording();
  return recording == nullptr || recording->done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = fault_on(__func__, event->device)) return error;
  if (const std::shared_ptr<Recording> recording = event->recording()) {
    recording->wait();
    pools_see_host_wait(recording->marks);
  }
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const cudaError_t error = fault_on(__func__, begin->device)) return error;
  const std::shared_ptr<Recording> first = begin->recording();
  const std::shared_ptr<Recording> last = end->recording();
  if (first == nullptr || last == nullptr || (begin->flags & cudaEventDisableTiming) != 0 ||
      (end->flags & cudaEventDisableTiming) != 0) {
    return failed(cudaErrorInvalidResourceHandle);
  }
  if (!first->done() || !last->done()) return cudaErrorNotReady;
  *milliseconds = static_cast<float>(static_cast<double>(last->at_ns() - first->at_ns()) / 1e6);
  return cudaSuccess;
}
