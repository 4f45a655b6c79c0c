#include "backend/cuda/cupti/buffer_pool.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace fsdpbench::backend::cuda {

void BufferPool::Free::operator()(std::uint8_t* data) const { std::free(data); }

BufferPool::Memory BufferPool::make(std::size_t bytes) {
  // calloc leaves pages alone that the system zeroed: what no run needs is never touched.
  Memory memory(static_cast<std::uint8_t*>(std::calloc(1, bytes)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

BufferPool::BufferPool(const BufferLimits& limits)
    : limits_(limits),
      large_(make(limits.large_bytes * limits.large_count)),
      small_(make(limits.small_bytes * limits.small_count)),
      scratch_(make(limits.small_bytes)) {
  free_large_.reserve(limits.large_count);
  free_small_.reserve(limits.small_count);
  for (std::size_t i = limits.large_count; i-- > 0;) free_large_.push_back(large_.get() + i * limits.large_bytes);
  for (std::size_t i = limits.small_count; i-- > 0;) free_small_.push_back(small_.get() + i * limits.small_bytes);
}

BufferPool::Buffer BufferPool::take(bool large) {
  const std::lock_guard lock(mutex_);
  if ((large || free_small_.empty()) && !free_large_.empty()) {
    std::uint8_t* data = free_large_.back();
    free_large_.pop_back();
    return {data, limits_.large_bytes};
  }
  if (!free_small_.empty()) {
    std::uint8_t* data = free_small_.back();
    free_small_.pop_back();
    return {data, limits_.small_bytes};
  }
  ++shortages_;
  return {scratch_.get(), limits_.small_bytes};
}

bool BufferPool::is_large(const std::uint8_t* data) const {
  return data >= large_.get() && data < large_.get() + limits_.large_bytes * limits_.large_count;
}

void BufferPool::give_back(std::uint8_t* data) {
  const bool large = is_large(data);
  std::memset(data, 0, large ? limits_.large_bytes : limits_.small_bytes);
  const std::lock_guard lock(mutex_);
  (large ? free_large_ : free_small_).push_back(data);
}

std::int64_t BufferPool::shortages() const {
  const std::lock_guard lock(mutex_);
  return shortages_;
}

std::size_t BufferPool::in_use() const {
  const std::lock_guard lock(mutex_);
  return limits_.large_count - free_large_.size() + limits_.small_count - free_small_.size();
}

}  // namespace fsdpbench::backend::cuda
