#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/enum_table.h"

namespace fsdpbench {

/// Where a buffer lies.
enum class MemorySpace : std::uint8_t {
  device,
  host,  ///< pinned: copied from and to the device beside all else (fsdp.cpu_offload)
};

inline constexpr std::size_t kMemorySpaceCount = kEnumCount<MemorySpace>;
inline constexpr auto& kMemorySpaces = kEnumerators<MemorySpace>;

constexpr std::size_t index_of(MemorySpace space) { return static_cast<std::size_t>(space); }

constexpr std::string_view to_string(MemorySpace space) { return space == MemorySpace::device ? "device" : "host"; }

}  // namespace fsdpbench
