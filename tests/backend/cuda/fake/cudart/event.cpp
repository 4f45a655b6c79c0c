#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "backend/cuda/fake/cudart/capture.h"
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

/// What a cudaEvent_t points to.
struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  mutable std::mutex mutex;
  std::shared_ptr<fake::Recording> latest;
  std::shared_ptr<fake::Capture> capture;  ///< that it was last recorded in; null: in none
  std::set<std::size_t> after;             ///< in a capture: the nodes before it

  std::shared_ptr<fake::Recording> recording() const {
    const std::lock_guard lock(mutex);
    return latest;
  }
  /// A recording that is under way from now on.
  std::shared_ptr<fake::Recording> begin_recording() {
    auto recording = std::make_shared<fake::Recording>();
    const std::lock_guard lock(mutex);
    latest = recording;
    return recording;
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

namespace {

/// Whether the host may ask when it was, or whether it has been: not of an event that is part of a capture.
cudaError_t forbidden_on(cudaEvent_t event) {
  {
    const std::lock_guard lock(captures_mutex());
    if (event->capture != nullptr) {
      event->capture->valid = false;
      return failed(cudaErrorCapturedEvent);
    }
  }
  return forbidden_to_thread();
}

/// Whether the recording is a capture's.
bool capture_recording(cudaEvent_t event, cudaStream_t stream) {
  const std::uint64_t id = stream_of(stream).id();
  const std::lock_guard lock(captures_mutex());
  event->capture = capture_of(id);
  if (event->capture == nullptr) return false;
  event->after = event->capture->ends[id];
  return true;
}

}  // namespace

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags == cudaEventRecordDefault) return cudaEventRecord(event, stream);
  if (const cudaError_t error = fault_on_stream(__func__, stream)) return error;
  if (event->device != device_of(stream)) return failed(cudaErrorInvalidResourceHandle);
  const auto prepare = [event]() -> std::function<void()> {
    return [recording = event->begin_recording()] { recording->finish(); };
  };
  if (!capture_on_stream(stream, prepare, {.kind = WorkKind::other})) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(captures_mutex());
  event->capture = nullptr;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = fault_on_stream(__func__, stream)) return error;
  if (event->device != device_of(stream)) return failed(cudaErrorInvalidResourceHandle);
  if (capture_recording(event, stream)) return cudaSuccess;
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
  if (const cudaError_t error = fault_on_stream(__func__, stream)) return error;
  {
    const std::uint64_t id = stream_of(stream).id();
    const std::lock_guard lock(captures_mutex());
    const std::shared_ptr<Capture> capture = capture_of(id);
    if (capture != nullptr && event->capture != capture) {
      capture->valid = false;
      return failed(event->capture == nullptr ? cudaErrorStreamCaptureIsolation : cudaErrorStreamCaptureMerge);
    }
    if (event->capture != nullptr) {
      if (!event->capture->active) return failed(cudaErrorCapturedEvent);
      join(event->capture, id, event->after);
      return cudaSuccess;
    }
  }
  if (const std::shared_ptr<Recording> recording = event->recording()) {
    run_on_stream(stream, [recording] { recording->wait(); }, {.kind = WorkKind::other});
    stream_waits(stream_of(stream).id(), recording->marks);
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = fault_on(__func__, event->device)) return error;
  if (const cudaError_t error = forbidden_on(event)) return error;
  const std::shared_ptr<Recording> recording = event->recording();
  return recording == nullptr || recording->done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = fault_on(__func__, event->device)) return error;
  if (const cudaError_t error = forbidden_on(event)) return error;
  if (const std::shared_ptr<Recording> recording = event->recording()) {
    recording->wait();
    pools_see_host_wait(recording->marks);
  }
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const cudaError_t error = fault_on(__func__, begin->device)) return error;
  for (cudaEvent_t event : {begin, end}) {
    if (const cudaError_t error = forbidden_on(event)) return error;
  }
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
