#include "backend/cuda/nccl/registered_arena.h"

#include <fmt/format.h>
#include <nccl.h>

#include "backend/cuda/nccl/nccl_words.h"
#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

RegisteredArena::RegisteredArena(std::size_t bytes) {
  void* memory = nullptr;
  const ncclResult_t result = ncclMemAlloc(&memory, bytes);
  if (result == ncclUnhandledCudaError) {
    throw ResourceError(fmt::format("ncclMemAlloc of {}: {}", format_bytes(static_cast<std::int64_t>(bytes)),
                                    nccl_words(result, nullptr)));
  }
  if (result != ncclSuccess) throw BackendError("ncclMemAlloc: " + nccl_words(result, nullptr));
  memory_ = {static_cast<std::byte*>(memory), bytes};
}

RegisteredArena::~RegisteredArena() { ncclMemFree(memory_.data()); }

}  // namespace fsdpbench::backend::cuda
