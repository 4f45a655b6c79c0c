#include "backend/cuda/fake/cudart/stream.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/fake/cudart/device.h"
#include "backend/cuda/fake/cudart/faults.h"
#include "base/clock.h"

/// Object behind a cudaStream_t.
struct CUstream_st {
  std::shared_ptr<fake::Stream> stream;
};

namespace fake {
namespace {

struct Streams {
  std::mutex mutex;
  std::vector<std::weak_ptr<Stream>> all;
  std::map<int, CUstream_st> defaults;
  std::function<void(const FinishedWork&)> observer;
};
Streams& streams() {
  static Streams& all = *new Streams;  // threads of streams may outlive main
  return all;
}
std::atomic<std::uint64_t> launches{0};
std::atomic<std::uint64_t> stream_ids{0};
thread_local bool calls_host_function = false;

/// Does `work` and tells the observer of it.
void perform(FinishedWork facts, const std::function<void()>& work) {
  facts.begin_ns = fsdpbench::now_ns();
  work();
  facts.end_ns = fsdpbench::now_ns();
  if (facts.label.kind == WorkKind::other) return;
  std::function<void(const FinishedWork&)> observer;
  {
    const std::lock_guard lock(streams().mutex);
    observer = streams().observer;
  }
  if (observer) observer(facts);
}

}  // namespace

Stream::Stream(int device, int priority) : device_(device), priority_(priority), id_(++stream_ids) {}

std::shared_ptr<Stream> Stream::start(int device, int priority) {
  std::shared_ptr<Stream> stream(new Stream(device, priority));
  std::thread([stream] { stream->run(); }).detach();
  const std::lock_guard lock(streams().mutex);
  std::erase_if(streams().all, [](const std::weak_ptr<Stream>& s) { return s.expired(); });
  streams().all.push_back(stream);
  return stream;
}

std::uint64_t Stream::push(std::function<void()> work, const WorkLabel& label) {
  FinishedWork facts;
  facts.number = ++launches;
  facts.label = label;
  facts.device = device_;
  facts.stream = id_;
  facts.launched_ns = fsdpbench::now_ns();
  facts.launch_thread = static_cast<std::uint32_t>(gettid());
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({std::move(work), facts});
  }
  changed_.notify_all();
  return facts.number;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return;
    {
      Item item = std::move(items_.front());
      items_.pop_front();
      busy_ = true;
      lock.unlock();
      perform(item.facts, item.work);
    }
    lock.lock();
    busy_ = false;
    if (items_.empty()) changed_.notify_all();
  }
}

bool Stream::idle() const {
  const std::lock_guard lock(mutex_);
  return items_.empty() && !busy_;
}

void Stream::wait_idle() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return items_.empty() && !busy_; });
}

void Stream::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

Stream& stream_of(cudaStream_t handle) {
  if (handle != nullptr && handle != cudaStreamLegacy && handle != cudaStreamPerThread) return *handle->stream;
  const int device = current_device();
  {
    const std::lock_guard lock(streams().mutex);
    if (const auto found = streams().defaults.find(device); found != streams().defaults.end()) {
      return *found->second.stream;
    }
  }
  std::shared_ptr<Stream> made = Stream::start(device, 0);
  const std::lock_guard lock(streams().mutex);
  return *streams().defaults.try_emplace(device, CUstream_st{made}).first->second.stream;
}

void wait_for_device(int device) {
  std::vector<std::shared_ptr<Stream>> found;
  {
    const std::lock_guard lock(streams().mutex);
    for (const std::weak_ptr<Stream>& known : streams().all) {
      if (std::shared_ptr<Stream> stream = known.lock(); stream && stream->device() == device) found.push_back(stream);
    }
  }
  for (const std::shared_ptr<Stream>& stream : found) stream->wait_idle();
}

std::uint64_t run_on_stream(cudaStream_t stream, std::function<void()> work, const WorkLabel& label) {
  return stream_of(stream).push(std::move(work), label);
}

void observe(std::function<void(const FinishedWork&)> observer) {
  const std::lock_guard lock(streams().mutex);
  streams().observer = std::move(observer);
}

bool in_host_function() { return calls_host_function; }

int device_of(cudaStream_t stream) { return stream_of(stream).device(); }

}  // namespace fake

using namespace fake;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  if (const cudaError_t error = fault(__func__)) return error;
  make_context();
  *stream = new CUstream_st{Stream::start(current_device(), priority)};
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->stream->close();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  return stream_of(stream).idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  const Marks marks = before(stream_of(stream).id());
  stream_of(stream).wait_idle();
  pools_see_host_wait(marks);
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = stream_of(stream).id();
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream).priority();
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  *device = device_of(stream);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = fault(__func__)) return error;
  wait_for_device(current_device());
  return cudaSuccess;  // what pools may do then, nobody here asks for
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  const auto call = [function, data] {
    // The Guide promises no two at once.
    static std::mutex& one_at_a_time = *new std::mutex;
    const std::lock_guard lock(one_at_a_time);
    calls_host_function = true;
    function(data);
    calls_host_function = false;
  };
  run_on_stream(stream, call, {.kind = WorkKind::other});
  return cudaSuccess;
}
