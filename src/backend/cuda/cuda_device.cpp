#include "backend/cuda/cuda_device.h"

#include <fmt/format.h>
#include <pthread.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/device_memory.h"
#include "backend/kernels.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cuda {
namespace {

/// So many ops of a lane may be noted before the oldest are looked at: a host that runs ahead should not ask the
/// driver at every op.
constexpr std::size_t kNoted = 64;

using Clock = std::chrono::steady_clock;

// A wait that ends soon is met at once; a long one leaves the core to others.
constexpr std::chrono::microseconds kSpin{200};
constexpr std::chrono::microseconds kNap{20};
constexpr std::chrono::milliseconds kWatchEvery{1};
/// A communicator's own watch has the same deadline and can say more.
constexpr std::chrono::seconds kGrace{1};
/// Longest wait of a device that is given up for its streams. NCCL's kernels end when their communicator is aborted.
constexpr std::chrono::seconds kPatience{5};

std::unique_ptr<OpTimer> make_timer(const CudaOptions& options, std::string& note) {
  if (options.timer == Timer::events) return make_event_timer();
  std::string why_not;
  std::unique_ptr<OpTimer> timer = make_cupti_timer(&why_not);
  if (timer != nullptr) return timer;
  if (options.timer == Timer::cupti) throw ConfigError("device.timer = \"cupti\" cannot be had: " + why_not);
  note = why_not;
  return make_event_timer();
}

std::unique_ptr<DeviceMemory> make_memory(const LaneStreams& streams, const BackendOptions& options) {
  const bool poison = options.poison_freed_memory;
  if (options.get<CudaOptions>().nccl.registration == NcclOptions::Register::none) {
    return std::make_unique<FixedMemory>(streams, options.pool_bytes, poison);
  }
  if (options.category_bytes == CategoryBytes{}) {
    throw BackendError("memory that NCCL registers is one region, and nobody said how large it must be");
  }
  return std::make_unique<ArenaMemory>(streams, options.category_bytes, poison);
}

}  // namespace

void OpsUnderWay::add(Lane lane, cudaStream_t stream, const char* name, std::int32_t step, std::int32_t op) {
  std::deque<Op>& ops = lanes_[index_of(lane)];
  if (ops.size() >= kNoted && ops.size() % kNoted == 0) advanced_ |= advance(ops);
  const Op added{++issued_, name, step, op, events_.take()};
  check(cudaEventRecord(added.done, stream), "recording an event");
  ops.push_back(added);
}

bool OpsUnderWay::advance(std::deque<Op>& ops) {
  bool any = false;
  while (!ops.empty()) {
    if (cudaEventQuery(ops.front().done) != cudaSuccess) break;
    events_.give_back(ops.front().done);
    ops.pop_front();
    any = true;
  }
  return any;
}

bool OpsUnderWay::advance() {
  bool any = advanced_;
  advanced_ = false;
  for (std::deque<Op>& ops : lanes_) any |= advance(ops);
  return any;
}

std::string OpsUnderWay::oldest() const {
  const Op* first = nullptr;
  Lane lane = Lane::compute;
  for (const Lane candidate : kLanes) {
    const std::deque<Op>& ops = lanes_[index_of(candidate)];
    if (ops.empty() || (first != nullptr && first->number < ops.front().number)) continue;
    first = &ops.front();
    lane = candidate;
  }
  if (first == nullptr) return {};
  const std::string where = first->step < 0 ? ""
                            : first->op < 0 ? fmt::format(" (step {})", first->step)
                                            : fmt::format(" (step {}, op {})", first->step, first->op);
  return fmt::format("{}{} on lane {}", first->name, where, to_string(lane));
}

CudaDevice::CudaDevice(launch::Abort& abort, int rank, const BackendOptions& options, const HostCompute& host)
    : abort_(abort), rank_(rank), timeout_(options.get<CudaOptions>().nccl.timeout_s) {
  if (options.get<CudaOptions>().monitor) monitor_.emplace(gpu_place(current_gpu()));
  timer_ = make_timer(options.get<CudaOptions>(), timer_note_);
  if (options.host_pool_bytes > 0) {
    pinned_pool_ = std::make_unique<PinnedPool>(streams_, rank, options.host_pool_bytes, options.poison_freed_memory);
    pinned_.add(pinned_pool_->region());
  }
  if (options.offload_lanes && host.kernels) {
    host_lane_ = std::make_unique<HostLane>(streams_[Lane::host_compute], rank, host.kernels, host.threads);
  }
  for (const Lane lane : kLanes) {
    kernels_[index_of(lane)] = make_cuda_kernels(
        streams_[lane], options.get<CudaOptions>().arithmetic, [this] { look_around(); }, &pinned_);
  }
  note_memory("streams, timer, handles of libraries");
  memory_ = make_memory(streams_, options);
  note_memory("the pool, before the first op");
}

CudaDevice::~CudaDevice() {
  drop_tasks();
  bool idle = true;
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (const Lane lane : kLanes) {
    while (cudaStreamQuery(streams_[lane]) == cudaErrorNotReady && Clock::now() < deadline) {
      std::this_thread::sleep_for(kNap);
    }
    idle = idle && cudaStreamQuery(streams_[lane]) != cudaErrorNotReady;
  }
  if (!idle && pinned_pool_) pinned_pool_->abandon();
  for (const auto& [block, offset] : offsets_) {
    try {
      memory_->free(block, pool_.size_of_block(offset), Lane::compute);
    } catch (const std::exception&) {  // the GPU is broken, which somebody has said
    }
  }
}

std::string CudaDevice::in_op(Lane lane, const char* name, const char* what) const {
  return fmt::format("rank {}, lane {}, op {}: {}", rank_, to_string(lane), name, what);
}

template <class Work>
void CudaDevice::issue(Lane lane, const char* name, Stamp* stamp, const Work& work) {
  throw_if_failed();
  order_.issue(lane);
  try {
    if (stamp != nullptr) timer_->begin(lane, streams_[lane], step_, op_, stamp);
    work();
    if (stamp != nullptr) timer_->end(lane, streams_[lane]);
    ops_.add(lane, streams_[lane], name, step_, op_);
  } catch (const launch::Stopped&) {
    drop_tasks();
    throw;
  } catch (const ResourceError& e) {
    drop_tasks();
    throw ResourceError(in_op(lane, name, e.what()));
  } catch (const std::exception& e) {
    drop_tasks();
    throw BackendError(in_op(lane, name, e.what()));
  }
}

void CudaDevice::enqueue(Lane lane, const char* name, Task task, Stamp* stamp) {
  if (lane == Lane::host_compute) return enqueue_on_host(name, std::move(task), stamp);
  issue(lane, name, stamp, [&] { task(kernels(lane)); });
}

void CudaDevice::enqueue_on_host(const char* name, Task task, Stamp* stamp) {
  constexpr Lane kLane = Lane::host_compute;
  if (host_lane_ == nullptr) throw BackendError(in_op(kLane, name, "this run has no lane that the host computes"));
  // The task stamps itself: it is no work of the GPU, so neither events nor CUPTI shall time it.
  issue(kLane, name, nullptr, [&] { host_lane_->enqueue(name, std::move(task), stamp); });
}

void CudaDevice::drop_tasks() {
  if (host_lane_) host_lane_->drop();
}

void CudaDevice::run_op(Lane lane, const char* name, const std::function<void(cudaStream_t)>& work, Stamp* stamp) {
  issue(lane, name, stamp, [&] { work(streams_[lane]); });
}

void CudaDevice::set_op(std::int32_t step, std::int32_t op) {
  step_ = step;
  op_ = op;
}

void CudaDevice::record(Event event, Lane lane) {
  if (event < 0) throw std::logic_error("Device::record: an event is a number from 0 up");
  const std::size_t index = event;
  if (index >= events_.size()) events_.resize(index + 1);
  Recording& recorded = events_[index];
  if (recorded.event == nullptr) recorded.event = event_store_.take();
  check(cudaEventRecord(recorded.event, streams_[lane]), "recording an event");
  recorded.clock = order_.record(lane);
}

CudaDevice::Recording* CudaDevice::recording(Event event) {
  const std::size_t index = event;
  if (event < 0 || index >= events_.size() || events_[index].event == nullptr) return nullptr;
  return &events_[index];
}

void CudaDevice::wait(Lane lane, Event event) {
  const Recording* const recorded = recording(event);
  if (recorded == nullptr) return;
  order_.wait(lane, recorded->clock);
  check(cudaStreamWaitEvent(streams_[lane], recorded->event, 0), "waiting for an event");
}

void CudaDevice::throw_if_failed() {
  try {
    if (host_lane_) host_lane_->throw_if_failed();
    abort_.throw_if_set();
  } catch (...) {
    drop_tasks();
    throw;
  }
}

void CudaDevice::look_around() {
  throw_if_failed();
  if (watched_) watched_();
}

template <class Ready>
void CudaDevice::block_until(const Ready& ready) try {
  const Clock::time_point begin = Clock::now();
  Clock::time_point watched = begin;
  Clock::time_point progressed = begin;
  while (!ready()) {
    throw_if_failed();
    const Clock::time_point now = Clock::now();
    if (now - watched >= kWatchEvery) {
      watched = now;
      look_around();
      if (ops_.advance()) progressed = now;
      if (now - progressed > timeout_ + kGrace) throw_stuck();
    }
    if (now - begin > kSpin) std::this_thread::sleep_for(kNap);
  }
  for (const auto& kernels : kernels_) kernels->deliver_downloads();
} catch (...) {
  drop_tasks();
  throw;
}

std::string CudaDevice::oldest_op() const {
  const std::string oldest = ops_.oldest();
  return oldest.empty() ? "no op of a lane is unfinished" : "the oldest unfinished op is " + oldest;
}

void CudaDevice::throw_stuck() const {
  throw BackendError(fmt::format("rank {}: nothing has completed on its GPU for {} s; {}", rank_,
                                 std::chrono::duration<double>(timeout_).count(), oldest_op()));
}

bool CudaDevice::is_done(cudaError_t status) const {
  if (status == cudaSuccess || status == cudaErrorNotReady) return status == cudaSuccess;
  check(status, fmt::format("rank {}, waiting for its GPU ({})", rank_, oldest_op()));
  return false;
}

void CudaDevice::host_wait(Event event) {
  const Recording* const recorded = recording(event);
  if (recorded == nullptr) return;
  throw_if_failed();
  block_until([&] { return is_done(cudaEventQuery(recorded->event)); });
  // At once. CUDA's allocator learns from a wait, not from a query, that other lanes may have what was freed before.
  check(cudaEventSynchronize(recorded->event), "waiting for an event");
  order_.host_wait(recorded->clock);
}

void CudaDevice::synchronize() {
  throw_if_failed();
  for (const Lane lane : kLanes) {
    block_until([&] { return is_done(cudaStreamQuery(streams_[lane])); });
    check(cudaStreamSynchronize(streams_[lane]), "waiting for a lane");  // as in host_wait()
    order_.host_wait(order_.record(lane));
  }
  throw_if_failed();
}

std::byte* CudaDevice::allocate(std::int64_t bytes, MemoryCategory category, Lane lane) {
  if (bytes < 0) throw std::logic_error("Device::allocate: negative size");
  const std::int64_t offset = pool_.allocate(bytes, category, lane, order_);
  std::byte* const memory = memory_->allocate(offset, pool_.category_place(offset), pool_.size_of_block(offset), lane);
  if (memory == nullptr) {
    pool_.free(offset, lane, order_);
    throw_out_of_memory(bytes, category);
  }
  offsets_[memory] = offset;
  return memory;
}

std::byte* CudaDevice::allocate_host(std::int64_t bytes, MemoryCategory category, Lane lane) {
  if (bytes < 0) throw std::logic_error("Device::allocate_host: negative size");
  if (pinned_pool_ == nullptr) return Device::allocate_host(bytes, category, lane);
  return pinned_pool_->allocate(bytes, category, lane, order_);
}

const PoolStatistics& CudaDevice::host_memory() const {
  return pinned_pool_ ? pinned_pool_->statistics() : Device::host_memory();
}

void CudaDevice::reset_memory_peaks() {
  pool_.reset_peaks();
  if (pinned_pool_) pinned_pool_->reset_peaks();
}

void CudaDevice::throw_out_of_memory(std::int64_t bytes, MemoryCategory category) const {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  throw ResourceError(
      fmt::format("rank {} cannot allocate {} for {}: {} are in use by its pool, and of its GPU's {} are "
                  "{} free",
                  rank_, format_bytes(bytes), to_string(category), format_bytes(pool_.statistics().live_total),
                  format_bytes(static_cast<std::int64_t>(total)), format_bytes(static_cast<std::int64_t>(free))));
}

void CudaDevice::free(std::byte* memory, Lane lane) {
  if (pinned_pool_ && pinned_pool_->contains(memory)) return pinned_pool_->free(memory, lane, order_);
  const auto found = offsets_.find(memory);
  if (found == offsets_.end()) throw std::logic_error("Device::free: no live block starts there");
  const std::int64_t offset = found->second;
  const std::int64_t bytes = pool_.size_of_block(offset);
  offsets_.erase(found);
  pool_.free(offset, lane, order_);
  memory_->free(memory, bytes, lane);
}

std::optional<GpuHealth> CudaDevice::health() const {
  if (monitor_) return monitor_->health();
  GpuHealth unknown;
  unknown.unknown_because = "device.monitor is false.";
  return unknown;
}

Facts CudaDevice::facts() const {
  Facts all = timer_->facts();
  if (!timer_note_.empty()) all.emplace_back("no CUPTI", timer_note_);
  all.emplace_back("stream priorities", streams_.priorities());
  const auto append = [&](const Facts& more) { all.insert(all.end(), more.begin(), more.end()); };
  append(memory_->facts());
  if (pinned_pool_) append(pinned_pool_->facts());
  if (host_lane_) append(host_lane_->facts());
  append(memory_log_.facts());
  std::int64_t workspaces = 0;
  for (const auto& kernels : kernels_) workspaces += kernels->workspace_bytes();
  all.emplace_back("workspaces of the kernels", format_bytes(workspaces));
  if (more_facts_) append(more_facts_());
  return all;
}

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
