#include "backend/cuda/host_lane.h"

#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/kernels.h"
#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

/// Outlives the lane where host functions are called late.
struct HostLane::State {
  int rank = 0;
  std::mutex mutex;
  std::condition_variable changed;
  Call* next = nullptr;      ///< to be run, or running
  std::int64_t dropped = 0;  ///< so many tasks, the first ones
  bool closing = false;
  std::exception_ptr failure;  ///< written before `failed`
  std::atomic<bool> failed{false};

  void fail(const char* op, const std::exception& e) {
    const std::string words =
        fmt::format("rank {}, lane {}, op {}: {}", rank, to_string(Lane::host_compute), op, e.what());
    failure = dynamic_cast<const ResourceError*>(&e) != nullptr ? std::make_exception_ptr(ResourceError(words))
                                                                : std::make_exception_ptr(BackendError(words));
    failed.store(true);
  }
};

struct HostLane::Call {
  std::shared_ptr<State> state;
  std::int64_t number = 0;  ///< counted from 1
  const char* name = "";
  Device::Task task;
  Stamp* stamp = nullptr;

  /// The lock is held.
  bool is_off() const { return number <= state->dropped || state->failed; }
  void run(Kernels& kernels) const try {
    Stamp unwanted;
    Stamp& times = stamp != nullptr ? *stamp : unwanted;
    times.begin_ns = now_ns();
    task(kernels);
    times.end_ns = now_ns();
  } catch (const std::exception& e) {
    state->fail(name, e);
  } catch (...) {
    state->fail(name, std::runtime_error("an unknown exception"));
  }
};

HostLane::HostLane(cudaStream_t stream, int rank, MakeHostKernels kernels, int threads)
    : stream_(stream), threads_(threads), state_(std::make_shared<State>()) {
  state_->rank = rank;
  worker_ = std::thread([state = state_, make = std::move(kernels), threads] { work(*state, make, threads); });
}

HostLane::~HostLane() {
  drop();
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->changed.notify_all();
  worker_.join();
}

void HostLane::work(State& state, const MakeHostKernels& make, int threads) {
  pthread_setname_np(pthread_self(), fmt::format("r{} host", state.rank).substr(0, 15).c_str());
  std::unique_ptr<Kernels> kernels;
  try {
    kernels = make(threads);
  } catch (const std::exception& e) {
    state.fail("start", e);
  }
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.next != nullptr || state.closing; });
    if (state.next == nullptr) return;
    if (const Call& call = *state.next; !call.is_off()) {
      lock.unlock();
      call.run(*kernels);
      lock.lock();
    }
    state.next = nullptr;
    state.changed.notify_all();
  }
}

void HostLane::perform(void* data) {
  const std::unique_ptr<Call> call(static_cast<Call*>(data));
  State& state = *call->state;
  std::unique_lock lock(state.mutex);
  if (call->is_off()) return;
  state.next = call.get();
  state.changed.notify_all();
  state.changed.wait(lock, [&] { return state.next == nullptr; });
}

void HostLane::enqueue(const char* name, Device::Task task, Stamp* stamp) {
  auto call = std::make_unique<Call>(Call{state_, ++enqueued_, name, std::move(task), stamp});
  check(cudaLaunchHostFunc(stream_, &HostLane::perform, call.get()), "cudaLaunchHostFunc");
  (void)call.release();  // perform() has it; a GPU that fails before that never calls it
}

void HostLane::throw_if_failed() const {
  if (state_->failed) std::rethrow_exception(state_->failure);
}

void HostLane::drop() {
  std::unique_lock lock(state_->mutex);
  state_->dropped = enqueued_;
  state_->changed.wait(lock, [&] { return state_->next == nullptr; });
}

Facts HostLane::facts() const {
  return {{"host updates", threads_ == 1 ? "by one thread" : fmt::format("by up to {} threads", threads_)}};
}

}  // namespace fsdpbench::backend::cuda
