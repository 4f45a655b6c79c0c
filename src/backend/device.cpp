#include "backend/device.h"

#include "base/error.h"

namespace fsdpbench::backend {

std::byte* Device::allocate_host(std::int64_t /*bytes*/, MemoryCategory /*category*/, Lane /*lane*/) {
  throw BackendError("this device has no pinned host memory");
}

std::byte* Device::host_buffer(std::int64_t bytes) {
  buffers_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  return buffers_.back().get();
}

const PoolStatistics& Device::host_memory() const {
  static const PoolStatistics kNone;
  return kNone;
}

}  // namespace fsdpbench::backend
