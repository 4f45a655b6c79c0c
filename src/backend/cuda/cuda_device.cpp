#include "backend/cuda/cuda_device.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "backend/cuda/arena_memory.h"
#include "backend/cuda/check.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/pool_memory.h"
#include "base/bytes.h"
#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// A wait that ends soon is met at once; a long one leaves the core to others.
constexpr std::chrono::microseconds kSpin{200};
constexpr std::chrono::microseconds kNap{20};
constexpr std::chrono::milliseconds kWatchEvery{1};
/// A communicator's own watch has the same deadline and can say more.
constexpr std::chrono::seconds kGrace{1};
/// How long a device that is given up waits for its streams. NCCL's kernels end when their communicator is aborted.
constexpr std::chrono::seconds kPatience{5};

std::unique_ptr<OpTimer> make_timer(Timer wanted, std::string& note) {
  if (wanted == Timer::events) return make_event_timer();
  std::string why_not;
  std::unique_ptr<OpTimer> timer = make_cupti_timer(&why_not);
  if (timer != nullptr) return timer;
  if (wanted == Timer::cupti) throw ConfigError("device.timer = \"cupti\" cannot be had: " + why_not);
  note = why_not;
  return make_event_timer();
}

std::unique_ptr<DeviceMemory> make_memory(const LaneStreams& streams, const BackendOptions& options) {
  const int gpus = options.session == nullptr ? options.ranks : 1;
  if (options.get<CudaOptions>().nccl.registration == NcclOptions::Register::none) {
    return std::make_unique<PoolMemory>(streams, options.pool_bytes, options.poison_freed_memory, gpus);
  }
  if (options.category_bytes == CategoryBytes{}) {
    throw BackendError("memory that NCCL registers is one region, and nobody said how large it must be");
  }
  return std::make_unique<ArenaMemory>(streams, options.category_bytes, options.poison_freed_memory, gpus);
}

}  // namespace

CudaDevice::CudaDevice(launch::Abort& abort, int rank, const BackendOptions& options)
    : abort_(abort),
      rank_(rank),
      timeout_(options.get<CudaOptions>().nccl.timeout_s),
      monitor_(gpu_place(current_gpu())) {
  timer_ = make_timer(options.get<CudaOptions>().timer, timer_note_);
  for (const Lane lane : kLanes) {
    kernels_[index_of(lane)] =
        make_cuda_kernels(streams_[lane], options.get<CudaOptions>().arithmetic, [this] { look_around(); });
  }
  note_memory("streams, timer, handles of libraries");
  memory_ = make_memory(streams_, options);
  note_memory("the pool, before the first op");
}

CudaDevice::~CudaDevice() {
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (const Lane lane : kLanes) {
    while (cudaStreamQuery(streams_[lane]) == cudaErrorNotReady && Clock::now() < deadline) {
      std::this_thread::sleep_for(kNap);
    }
  }
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
  abort_.throw_if_set();
  order_.issue(lane);
  try {
    if (stamp != nullptr) timer_->begin(lane, streams_[lane], step_, op_, stamp);
    work();
    if (stamp != nullptr) timer_->end(lane, streams_[lane]);
    ops_.add(lane, streams_[lane], name, step_, op_);
  } catch (const launch::Stopped&) {
    throw;
  } catch (const ResourceError& e) {
    throw ResourceError(in_op(lane, name, e.what()));
  } catch (const std::exception& e) {
    throw BackendError(in_op(lane, name, e.what()));
  }
}

void CudaDevice::enqueue(Lane lane, const char* name, Task task, Stamp* stamp) {
  issue(lane, name, stamp, [&] { task(kernels(lane)); });
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
  const auto index = static_cast<std::size_t>(event);
  if (index >= events_.size()) events_.resize(index + 1);
  Recording& recorded = events_[index];
  if (recorded.event == nullptr) recorded.event = event_store_.take();
  check(cudaEventRecord(recorded.event, streams_[lane]), "recording an event");
  recorded.clock = order_.record(lane);
}

CudaDevice::Recording* CudaDevice::recording(Event event) {
  const auto index = static_cast<std::size_t>(event);
  if (event < 0 || index >= events_.size() || events_[index].event == nullptr) return nullptr;
  return &events_[index];
}

void CudaDevice::wait(Lane lane, Event event) {
  const Recording* const recorded = recording(event);
  if (recorded == nullptr) return;
  order_.wait(lane, recorded->clock);
  check(cudaStreamWaitEvent(streams_[lane], recorded->event, 0), "waiting for an event");
}

void CudaDevice::look_around() const {
  abort_.throw_if_set();
  if (watched_) watched_();
}

template <class Ready>
void CudaDevice::block_until(const Ready& ready) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point watched = begin;
  Clock::time_point progressed = begin;
  while (!ready()) {
    abort_.throw_if_set();
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
  abort_.throw_if_set();
  block_until([&] { return is_done(cudaEventQuery(recorded->event)); });
  // At once. CUDA's allocator learns from a wait, not from a query, that other lanes may have what was freed before.
  check(cudaEventSynchronize(recorded->event), "waiting for an event");
  order_.host_wait(recorded->clock);
}

void CudaDevice::synchronize() {
  abort_.throw_if_set();
  for (const Lane lane : kLanes) {
    block_until([&] { return is_done(cudaStreamQuery(streams_[lane])); });
    check(cudaStreamSynchronize(streams_[lane]), "waiting for a lane");  // as in host_wait()
    order_.host_wait(order_.record(lane));
  }
  abort_.throw_if_set();
}

std::byte* CudaDevice::allocate(std::int64_t bytes, MemoryCategory category, Lane lane) {
  if (bytes < 0) throw std::logic_error("Device::allocate: negative size");
  const std::int64_t offset = pool_.allocate(bytes, category, lane, order_);
  std::byte* const memory = memory_->allocate(pool_.category_place(offset), pool_.size_of_block(offset), lane);
  if (memory == nullptr) {
    pool_.free(offset, lane, order_);
    throw_out_of_memory(bytes, category);
  }
  offsets_[memory] = offset;
  return memory;
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
  const auto found = offsets_.find(memory);
  if (found == offsets_.end()) throw std::logic_error("Device::free: no live block starts there");
  const std::int64_t offset = found->second;
  const std::int64_t bytes = pool_.size_of_block(offset);
  offsets_.erase(found);
  pool_.free(offset, lane, order_);
  memory_->free(memory, bytes, lane);
}

Facts CudaDevice::facts() const {
  Facts all = timer_->facts();
  if (!timer_note_.empty()) all.emplace_back("no CUPTI", timer_note_);
  all.emplace_back("stream priorities", streams_.priorities());
  const auto append = [&](const Facts& more) { all.insert(all.end(), more.begin(), more.end()); };
  append(memory_->facts());
  append(memory_log_.facts());
  std::int64_t workspaces = 0;
  for (const auto& kernels : kernels_) workspaces += kernels->workspace_bytes();
  all.emplace_back("workspaces of the kernels", format_bytes(workspaces));
  if (more_facts_) append(more_facts_());
  return all;
}

}  // namespace fsdpbench::backend::cuda
