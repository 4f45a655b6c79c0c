// Device memory is host memory. What does not come of a pool is a block of its own; AddressSanitizer sees a use after
// free in the order of the streams either way.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "backend/cuda/fake/cudart/device.h"
#include "backend/cuda/fake/cudart/faults.h"
#include "backend/cuda/fake/cudart/pool.h"
#include "backend/cuda/fake/cudart/stream.h"

namespace fake {
namespace {

constexpr std::int64_t kDeviceMemory_bytes = std::int64_t{8} << 30;
constexpr std::int64_t kContext_bytes = std::int64_t{300} << 20;
constexpr std::int64_t kHostMemory_bytes = std::int64_t{64} << 30;  // that can be page-locked
constexpr std::size_t kAlignment = 512;
constexpr std::int64_t kStaged_bytes = 64 << 10;  // pageable memory is copied at once up to this size, as by CUDA

struct Block {
  std::int64_t bytes = 0;
  int device = 0;
  cudaMemPool_t pool = nullptr;
};
struct Memory {
  std::mutex mutex;
  std::map<const std::byte*, Block> device;
  std::map<const std::byte*, std::int64_t> pinned;
  std::int64_t pinned_bytes = 0;
  std::int64_t pageable_copies = 0;
  std::map<int, std::int64_t> live;
  std::map<int, std::unique_ptr<CUmemPoolHandle_st>> default_pools;
  std::set<CUmemPoolHandle_st*> pools;
};
Memory& memory() {
  static Memory& all = *new Memory;  // threads of streams may outlive main
  return all;
}

std::int64_t padded(std::size_t bytes) {
  return static_cast<std::int64_t>((std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment);
}

/// Bytes of the GPU that are not of pools, and those that pools have reserved, used or not. The lock is held.
std::int64_t taken_bytes(int device) {
  std::int64_t bytes = memory().live[device];
  for (const CUmemPoolHandle_st* const pool : memory().pools) {
    if (pool->device == device) bytes += pool->reserved - pool->used;
  }
  return bytes;
}
bool has_room(int device, std::int64_t bytes) {
  return taken_bytes(device) + bytes <= kDeviceMemory_bytes - kContext_bytes;
}

cudaError_t allocate(void** result, std::size_t bytes) {
  const int device = current_device();
  const std::int64_t size = padded(bytes);
  const std::lock_guard lock(memory().mutex);
  if (!has_room(device, size)) return failed(cudaErrorMemoryAllocation);
  *result = std::aligned_alloc(kAlignment, static_cast<std::size_t>(size));
  if (*result == nullptr) return failed(cudaErrorMemoryAllocation);
  memory().live[device] += size;
  memory().device[static_cast<std::byte*>(*result)] = {size, device, nullptr};
  return cudaSuccess;
}

cudaError_t allocate_of(CUmemPoolHandle_st& pool, void** result, std::size_t bytes, cudaStream_t stream) {
  const std::int64_t size = padded(bytes);
  const std::lock_guard lock(memory().mutex);
  *result = pool.take(size, stream);
  if (*result == nullptr) return failed(cudaErrorMemoryAllocation);
  memory().live[pool.device] += size;
  memory().device[static_cast<std::byte*>(*result)] = {size, pool.device, &pool};
  return cudaSuccess;
}

/// The block that begins there; it is nobody's any more. Without bytes if there is none. The lock is held.
Block forget(const void* address) {
  const auto found = memory().device.find(static_cast<const std::byte*>(address));
  if (found == memory().device.end()) return {};
  const Block block = found->second;
  memory().live[block.device] -= block.bytes;
  memory().device.erase(found);
  return block;
}

template <class Map, class Size>
bool covers(const Map& blocks, const void* address, Size size) {
  const auto* const at = static_cast<const std::byte*>(address);
  auto after = blocks.upper_bound(at);
  if (after == blocks.begin()) return false;
  --after;
  return at < after->first + size(after->second);
}
bool is_device(const void* address) {
  const std::lock_guard lock(memory().mutex);
  return covers(memory().device, address, [](const Block& b) { return b.bytes; });
}
bool is_pinned(const void* address) {
  const std::lock_guard lock(memory().mutex);
  return covers(memory().pinned, address, [](std::int64_t bytes) { return bytes; });
}
bool is_pageable(const void* address) { return !is_device(address) && !is_pinned(address); }

/// Whether pointers are what the kind of a copy says, as CUDA demands it.
bool fits(cudaMemcpyKind kind, const void* target, const void* source) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return is_device(target) && !is_device(source);
    case cudaMemcpyDeviceToHost: return !is_device(target) && is_device(source);
    case cudaMemcpyDeviceToDevice: return is_device(target) && is_device(source);
    case cudaMemcpyHostToHost: return !is_device(target) && !is_device(source);
    case cudaMemcpyDefault: return true;
  }
  return false;
}
void count_pageable(const void* target, const void* source) {
  if (!is_pageable(target) && !is_pageable(source)) return;
  const std::lock_guard lock(memory().mutex);
  ++memory().pageable_copies;
}

CUmemPoolHandle_st* default_pool(int device) {
  const std::lock_guard lock(memory().mutex);
  std::unique_ptr<CUmemPoolHandle_st>& pool = memory().default_pools[device];
  if (pool == nullptr) {
    pool = std::make_unique<CUmemPoolHandle_st>(device, has_room);
    memory().pools.insert(pool.get());
  }
  return pool.get();
}

}  // namespace

std::int64_t live_bytes(int device) {
  const std::lock_guard lock(memory().mutex);
  return memory().live[device];
}

void pools_see_host_wait(const Marks& marks) {
  host_waits(marks);
  const std::lock_guard lock(memory().mutex);
  for (CUmemPoolHandle_st* const pool : memory().pools) pool->host_waited();
}

bool may_use(int device, const void* address) {
  const std::lock_guard lock(memory().mutex);
  const auto* const at = static_cast<const std::byte*>(address);
  auto after = memory().device.upper_bound(at);
  if (after == memory().device.begin()) return false;
  --after;
  const Block& block = after->second;
  if (at >= after->first + block.bytes) return false;
  return block.pool == nullptr || block.device == device || block.pool->shared_with.contains(device);
}

bool reaches(int device, const void* address) { return may_use(device, address) || is_pinned(address); }

std::int64_t pageable_copies() {
  const std::lock_guard lock(memory().mutex);
  return memory().pageable_copies;
}

std::int64_t pinned_bytes() {
  const std::lock_guard lock(memory().mutex);
  return memory().pinned_bytes;
}

}  // namespace fake

using namespace fake;

cudaError_t cudaMalloc(void** result, std::size_t bytes) {
  if (const cudaError_t error = fault(__func__)) return error;
  make_context();
  return allocate(result, bytes);
}

cudaError_t cudaFree(void* address) {
  if (const cudaError_t error = fault(__func__)) return error;
  if (address == nullptr) return cudaSuccess;
  wait_for_device(current_device());
  {
    const std::lock_guard lock(memory().mutex);
    const Block block = forget(address);
    if (block.bytes == 0) return failed(cudaErrorInvalidValue);
    if (block.pool != nullptr) {
      block.pool->give_back(static_cast<std::byte*>(address), nullptr);
      return cudaSuccess;
    }
  }
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** result, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  return allocate_of(*pool, result, bytes, stream);
}
cudaError_t cudaMallocAsync(void** result, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  return allocate_of(*default_pool(device_of(stream)), result, bytes, stream);
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  const std::lock_guard lock(memory().mutex);
  const Block block = forget(address);
  if (block.bytes == 0) return failed(cudaErrorInvalidValue);
  if (block.pool != nullptr) {
    block.pool->give_back(static_cast<std::byte*>(address), stream);
  } else {
    run_on_stream(stream, [address] { std::free(address); }, {.kind = WorkKind::other});
  }
  return cudaSuccess;
}

namespace fake {
namespace {

cudaError_t lock_pages(void** result, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  const std::lock_guard lock(memory().mutex);
  if (memory().pinned_bytes + size > kHostMemory_bytes) return failed(cudaErrorMemoryAllocation);
  *result = std::aligned_alloc(kAlignment, static_cast<std::size_t>(padded(bytes)));
  if (*result == nullptr) return failed(cudaErrorMemoryAllocation);
  memory().pinned[static_cast<std::byte*>(*result)] = size;
  memory().pinned_bytes += size;
  return cudaSuccess;
}

}  // namespace
}  // namespace fake

cudaError_t cudaMallocHost(void** result, std::size_t bytes) {
  if (const cudaError_t error = fault(__func__)) return error;
  return lock_pages(result, bytes);
}
/// Addresses are one for host and GPUs, so all that is page-locked is mapped and portable, whatever the flags say.
cudaError_t cudaHostAlloc(void** result, std::size_t bytes, unsigned) {
  if (const cudaError_t error = fault(__func__)) return error;
  return lock_pages(result, bytes);
}

cudaError_t cudaFreeHost(void* address) {
  if (in_host_function()) return failed(cudaErrorNotPermitted);
  wait_for_device(current_device());
  {
    const std::lock_guard lock(memory().mutex);
    const auto found = memory().pinned.find(static_cast<std::byte*>(address));
    if (found == memory().pinned.end()) return failed(cudaErrorInvalidValue);
    memory().pinned_bytes -= found->second;
    memory().pinned.erase(found);
  }
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  if (bytes == 0) return cudaSuccess;
  if (!fits(kind, target, source)) return failed(cudaErrorInvalidMemcpyDirection);
  count_pageable(target, source);
  const WorkLabel label{WorkKind::copy, "memcpy", static_cast<std::int64_t>(bytes)};
  if (is_pageable(source) && static_cast<std::int64_t>(bytes) <= kStaged_bytes) {
    const auto* const first = static_cast<const std::byte*>(source);
    auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    run_on_stream(
        stream, [=] { std::memcpy(target, staged->data(), bytes); }, label);
    return cudaSuccess;
  }
  run_on_stream(
      stream, [=] { std::memcpy(target, source, bytes); }, label);
  if (is_pageable(source) || is_pageable(target)) stream_of(stream).wait_idle();
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = cudaMemcpyAsync(target, source, bytes, kind, nullptr)) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  if (!reaches(device_of(stream), target)) return failed(cudaErrorInvalidValue);
  run_on_stream(stream, [=] { std::memset(target, value, bytes); },
                {WorkKind::fill, "memset", static_cast<std::int64_t>(bytes)});
  return cudaSuccess;
}
cudaError_t cudaMemset2DAsync(void* target, std::size_t pitch, int value, std::size_t width, std::size_t height,
                              cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  if (width > pitch) return failed(cudaErrorInvalidValue);
  const auto rows = [=] {
    for (std::size_t row = 0; row < height; ++row)
      std::memset(static_cast<std::byte*>(target) + row * pitch, value, width);
  };
  run_on_stream(stream, rows, {WorkKind::fill, "memset", static_cast<std::int64_t>(width * height)});
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* target, std::size_t pitch, const void* source, std::size_t source_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  if (width > pitch || width > source_pitch) return failed(cudaErrorInvalidPitchValue);
  const auto rows = [=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(target) + row * pitch,
                  static_cast<const std::byte*>(source) + row * source_pitch, width);
    }
  };
  run_on_stream(stream, rows, {WorkKind::copy, "memcpy", static_cast<std::int64_t>(width * height)});
  return cudaSuccess;
}
cudaError_t cudaMemset(void* target, int value, std::size_t bytes) {
  if (const cudaError_t error = cudaMemsetAsync(target, value, bytes, nullptr)) return error;
  return cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (const cudaError_t error = fault(__func__)) return error;
  make_context();
  *total = static_cast<std::size_t>(kDeviceMemory_bytes);
  const std::lock_guard lock(memory().mutex);
  *free = static_cast<std::size_t>(kDeviceMemory_bytes - kContext_bytes - taken_bytes(current_device()));
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (const cudaError_t error = fault(__func__)) return error;
  *pool = new CUmemPoolHandle_st(properties->location.id, has_room);
  const std::lock_guard lock(memory().mutex);
  memory().pools.insert(*pool);
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  wait_for_device(pool->device);  // CUDA frees it once all that uses it is done
  const std::lock_guard lock(memory().mutex);
  memory().pools.erase(pool);
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = default_pool(device);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::lock_guard lock(memory().mutex);
  const bool wide = attribute >= cudaMemPoolAttrReleaseThreshold;
  pool->attributes[attribute] = wide ? *static_cast<std::uint64_t*>(value) : *static_cast<unsigned*>(value);
  if (attribute == cudaMemPoolAttrUsedMemHigh) pool->used_high = pool->used;
  if (attribute == cudaMemPoolAttrReservedMemHigh) pool->reserved_high = pool->reserved;
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::lock_guard lock(memory().mutex);
  switch (attribute) {
    case cudaMemPoolAttrReservedMemHigh:
      *static_cast<std::uint64_t*>(value) = static_cast<std::uint64_t>(pool->reserved_high);
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
      *static_cast<std::uint64_t*>(value) = static_cast<std::uint64_t>(pool->reserved);
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemHigh:
      *static_cast<std::uint64_t*>(value) = static_cast<std::uint64_t>(pool->used_high);
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      *static_cast<std::uint64_t*>(value) = static_cast<std::uint64_t>(pool->used);
      return cudaSuccess;
    case cudaMemPoolAttrReleaseThreshold:
      *static_cast<std::uint64_t*>(value) = pool->attributes[attribute];
      return cudaSuccess;
    default: *static_cast<int*>(value) = static_cast<int>(pool->attributes[attribute]); return cudaSuccess;
  }
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  pool->trim_to(static_cast<std::int64_t>(bytes));
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* accesses, std::size_t count) {
  if (const cudaError_t error = fault(__func__)) return error;
  const std::lock_guard lock(memory().mutex);
  for (std::size_t i = 0; i < count; ++i) {
    const int device = accesses[i].location.id;
    if (device < 0 || device >= device_count() || device == pool->device) return failed(cudaErrorInvalidDevice);
    if (accesses[i].flags == cudaMemAccessFlagsProtReadWrite) pool->shared_with.insert(device);
  }
  return cudaSuccess;
}
