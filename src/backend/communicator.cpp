#include "backend/communicator.h"

#include "base/error.h"

namespace fsdpbench::backend {

void Communicator::all_to_all(Lane, const std::byte*, std::byte*, std::int64_t, DType, Stamp*) {
  throw BackendError("this backend has no all-to-all: fsdp.reduce_quantization needs the CPU backend");
}

}  // namespace fsdpbench::backend
