#pragma once

#include <cstddef>
#include <span>

namespace fsdpbench::backend::cuda {

/// Device memory of the current device from ncclMemAlloc: the kind that NCCL can register for every transport it has.
/// To be freed after the communicators that registered it are gone.
class RegisteredArena {
 public:
  /// Throws ResourceError if the device has not so much, BackendError with NCCL's words otherwise.
  explicit RegisteredArena(std::size_t bytes);
  ~RegisteredArena();
  RegisteredArena(const RegisteredArena&) = delete;
  RegisteredArena& operator=(const RegisteredArena&) = delete;

  std::span<std::byte> memory() const { return memory_; }

 private:
  std::span<std::byte> memory_;
};

}  // namespace fsdpbench::backend::cuda
