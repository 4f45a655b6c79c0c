#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fsdpbench {

/// Where a buffer lies.
enum class MemorySpace : std::uint8_t {
  device,
  host,  ///< pinned: copied from and to the device beside all else (fsdp.cpu_offload)
};

inline constexpr std::size_t kMemorySpaceCount = 2;
inline constexpr std::array<MemorySpace, kMemorySpaceCount> kMemorySpaces{MemorySpace::device, MemorySpace::host};

constexpr std::size_t index_of(MemorySpace space) { return static_cast<std::size_t>(space); }

constexpr std::string_view to_string(MemorySpace space) { return space == MemorySpace::device ? "device" : "host"; }

}  // namespace fsdpbench
