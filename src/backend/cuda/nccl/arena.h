#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdpbench::backend::cuda {

/// Device memory that communicators can register: ncclMemAlloc on the current device, 512-byte aligned at least.
/// Throws ResourceError that names the bytes.
std::byte* allocate_arena(std::int64_t bytes);
/// After every communicator that registered it is gone. Never throws.
void free_arena(std::byte* arena) noexcept;

}  // namespace fsdpbench::backend::cuda
