#include "backend/device.h"

#include "base/error.h"

namespace fsdpbench::backend {

std::byte* Device::allocate_host(std::int64_t /*bytes*/, MemoryCategory /*category*/, Lane /*lane*/) {
  throw BackendError("this device has no pinned host memory");
}

const PoolStatistics& Device::host_memory() const {
  static const PoolStatistics kNone;
  return kNone;
}

}  // namespace fsdpbench::backend
