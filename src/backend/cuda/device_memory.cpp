#include "backend/cuda/device_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <utility>

#include "backend/cuda/check.h"
#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

void PoisonedBlocks::fill(std::byte* memory, std::int64_t bytes, Lane lane) {
  std::erase_if(fillings_, [&](const Filling& f) {
    if (cudaEventQuery(f.done) != cudaSuccess) return false;
    events_.give_back(f.done);
    return true;
  });
  // All bits set is a NaN in fp32 and in bf16.
  check(cudaMemsetAsync(memory, 0xFF, bytes, streams_[lane]), "poisoning memory");
  fillings_.push_back({memory, memory + bytes, events_.take()});
  check(cudaEventRecord(fillings_.back().done, streams_[lane]), "recording an event");
}

void PoisonedBlocks::wait(Lane lane, const std::byte* memory, std::int64_t bytes) {
  for (const Filling& f : fillings_) {
    if (f.begin < memory + bytes && memory < f.end) {
      check(cudaStreamWaitEvent(streams_[lane], f.done, 0), "waiting for an event");
    }
  }
}

namespace {

struct InUse {
  std::int64_t used = 0;
  std::int64_t total = 0;
};

InUse ask_device() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return {static_cast<std::int64_t>(total - free), static_cast<std::int64_t>(total)};
}

bool is_communicated(MemoryCategory category) {
  return category != MemoryCategory::activations && category != MemoryCategory::optimizer;
}

std::int64_t sum(const CategoryBytes& bytes, bool communicated) {
  std::int64_t all = 0;
  for (const MemoryCategory category : kMemoryCategories) {
    if (is_communicated(category) == communicated) all = checked_sum(all, bytes[index_of(category)]);
  }
  return all;
}

}  // namespace

MemoryLog::MemoryLog() { note("CUDA context, and other programs on this GPU"); }

void MemoryLog::note(const std::string& what) {
  const std::int64_t used = ask_device().used;
  const std::int64_t taken = used - used_;
  used_ = used;
  notes_.emplace_back("GPU memory: " + what, taken < 0 ? "-" + format_bytes(-taken) : format_bytes(taken));
}

Facts MemoryLog::facts() const {
  Facts all = notes_;
  const InUse now = ask_device();
  all.emplace_back("GPU memory: in use on the whole device",
                   fmt::format("{} of {}; nothing is given back during a run, so this is the peak",
                               format_bytes(now.used), format_bytes(now.total)));
  return all;
}

FixedMemory::FixedMemory(const LaneStreams& streams, std::int64_t bytes, bool poison)
    : bytes_(bytes), poison_(poison), poisoned_(streams) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, std::max<std::int64_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw ResourceError(fmt::format("the GPU has not the {} of memory that this run needs", format_bytes(bytes)));
  }
  check(status, "cudaMalloc");
  memory_ = static_cast<std::byte*>(memory);
}

FixedMemory::~FixedMemory() { cudaFree(memory_); }

std::byte* FixedMemory::allocate(std::int64_t offset, const LanePool::CategoryPlace& /*place*/, std::int64_t bytes,
                                 Lane lane) {
  if (offset + bytes > bytes_) return nullptr;
  if (poison_) poisoned_.wait(lane, memory_ + offset, bytes);
  return memory_ + offset;
}

void FixedMemory::free(std::byte* memory, std::int64_t bytes, Lane lane) {
  if (poison_) poisoned_.fill(memory, bytes, lane);
}

Facts FixedMemory::facts() const {
  return {
      {"pool reserved at most", fmt::format("{}, one region, all of it before the first op", format_bytes(bytes_))}};
}

ArenaMemory::ArenaMemory(const LaneStreams& streams, const CategoryBytes& bytes, bool poison)
    : poison_(poison), arena_(sum(bytes, true)), others_(streams, sum(bytes, false), poison), poisoned_(streams) {
  for (const bool communicated : {true, false}) {
    std::int64_t begin = 0;
    for (const MemoryCategory category : kMemoryCategories) {
      if (is_communicated(category) != communicated) continue;
      parts_[index_of(category)] = {begin, bytes[index_of(category)]};
      begin += bytes[index_of(category)];
    }
  }
}

std::byte* ArenaMemory::allocate(std::int64_t /*offset*/, const LanePool::CategoryPlace& place, std::int64_t bytes,
                                 Lane lane) {
  const Part& part = parts_[index_of(place.category)];
  if (!is_communicated(place.category)) return others_.allocate(part.begin + place.offset, place, bytes, lane);
  if (place.offset + bytes > part.bytes) return nullptr;
  std::byte* const begin = region().data() + part.begin + place.offset;
  if (poison_) poisoned_.wait(lane, begin, bytes);
  return begin;
}

void ArenaMemory::free(std::byte* memory, std::int64_t bytes, Lane lane) {
  if (memory < region().data() || memory >= region().data() + region().size()) {
    others_.free(memory, bytes, lane);
  } else if (poison_) {
    poisoned_.fill(memory, bytes, lane);
  }
}

Facts ArenaMemory::facts() const {
  Facts all{{"registered memory", format_bytes(static_cast<std::int64_t>(region().size())) +
                                      ", one region of parameters, gradients and communication buffers"}};
  for (auto& fact : others_.facts()) all.push_back(std::move(fact));
  return all;
}

PinnedMemory::PinnedMemory(int rank, std::int64_t bytes, const std::string& purpose) {
  void* memory = nullptr;
  const cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // told by the exception; nobody else shall find it
    throw ResourceError(
        fmt::format("rank {} cannot have {} of page-locked host memory for {}: this host has too little that is free, "
                    "or locks no more. Use fewer ranks on this host, a smaller model, or memory that is not shared "
                    "with others",
                    rank, format_bytes(bytes), purpose));
  }
  check(status, "page-locked host memory for " + purpose);
  memory_ = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
}

PinnedMemory::~PinnedMemory() {
  if (!memory_.empty()) cudaFreeHost(memory_.data());  // a failure was or will be reported by the streams
}

std::optional<int> PinnedMemory::numa_node() const {
  int node = 0;
  if (memory_.empty() ||
      syscall(SYS_get_mempolicy, &node, nullptr, 0UL, memory_.data(), MPOL_F_NODE | MPOL_F_ADDR) != 0) {
    return std::nullopt;
  }
  return node;
}

PinnedPool::PinnedPool(const LaneStreams& streams, int rank, std::int64_t bytes, bool poison)
    : rank_(rank),
      poison_(poison),
      memory_(rank, round_up(bytes, LanePool::kGranule), "what fsdp.cpu_offload keeps there"),
      poisoned_(streams) {}

std::byte* PinnedPool::allocate(std::int64_t bytes, MemoryCategory category, Lane lane, const LaneOrder& order) {
  const auto all = static_cast<std::int64_t>(region().size());
  const auto refuse = [&] {
    throw ResourceError(fmt::format(
        "rank {} cannot allocate {} of pinned host memory for {}: {} are in use, and {} were set aside", rank_,
        format_bytes(bytes), to_string(category), format_bytes(pool_.statistics().live_total), format_bytes(all)));
  };
  if (bytes > all) refuse();
  const std::int64_t offset = pool_.allocate(bytes, category, lane, order);
  const std::int64_t size = pool_.size_of_block(offset);
  if (offset + size > all) {
    pool_.free(offset, lane, order);
    refuse();
  }
  std::byte* const memory = region().data() + offset;
  if (poison_) poisoned_.wait(lane, memory, size);
  return memory;
}

bool PinnedPool::contains(const std::byte* memory) const {
  const std::span<std::byte> all = region();
  return std::greater_equal<>()(memory, all.data()) && std::less<>()(memory, all.data() + all.size());
}

void PinnedPool::free(std::byte* memory, Lane lane, const LaneOrder& order) {
  const std::int64_t offset = memory - region().data();
  const std::int64_t bytes = pool_.size_of_block(offset);
  pool_.free(offset, lane, order);
  if (poison_) poisoned_.fill(memory, bytes, lane);
}

Facts PinnedPool::facts() const {
  const std::optional<int> node = memory_.numa_node();
  return {{"pinned host memory", format_bytes(static_cast<std::int64_t>(region().size())) +
                                     (node ? fmt::format(", its first page on NUMA node {}", *node) : "")}};
}

LaneStreams::LaneStreams() {
  check(cudaDeviceGetStreamPriorityRange(&least_, &greatest_), "stream priorities");
  for (const Lane lane : kLanes) {
    const int priority = lane == Lane::compute ? least_ : greatest_;
    check(cudaStreamCreateWithPriority(&streams_[index_of(lane)], cudaStreamNonBlocking, priority),
          "creating a stream");
  }
}

LaneStreams::~LaneStreams() {
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

std::string LaneStreams::priorities() const { return fmt::format("compute {}, others {}", least_, greatest_); }

}  // namespace fsdpbench::backend::cuda
