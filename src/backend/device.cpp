#include "backend/device.h"

#include "base/error.h"

namespace fsdpbench::backend {

std::byte* Device::allocate_host(std::int64_t /*bytes*/, MemoryCategory /*category*/, Lane /*lane*/) {
  throw BackendError("this backend has no pinned host memory: fsdp.cpu_offload needs the CPU backend");
}

const PoolStatistics& Device::host_memory() const {
  static const PoolStatistics kNone;
  return kNone;
}

}  // namespace fsdpbench::backend
