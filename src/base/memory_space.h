#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/enum_table.h"

namespace fsdpbench {

/// Memory that a buffer is in.
enum class MemorySpace : std::uint8_t {
  device,
  host,  ///< pinned: copied from and to the device beside all else (fsdp.cpu_offload)
};

inline constexpr std::size_t kMemorySpaceCount = kEnumCount<MemorySpace>;
inline constexpr auto& kMemorySpaces = kEnumerators<MemorySpace>;

constexpr std::size_t index_of(MemorySpace space) { return static_cast<std::size_t>(space); }

constexpr std::string_view to_string(MemorySpace space) { return space == MemorySpace::device ? "device" : "host"; }

/// Purpose of a device buffer. Every allocation names one.
enum class MemoryCategory : std::uint8_t {
  parameter_shards,       ///< fp32 master shards and replicated small parameters
  unsharded_parameters,   ///< gathered units, all-gather outputs not yet copied out included
  gradients,              ///< unsharded gradients, accumulators and gradient shards
  optimizer,              ///< moments, sharded like the parameters
  activations,            ///< saved tensors, layer boundaries, workspaces, batches
  communication_buffers,  ///< cast shards, reduce-scatter inputs and temporaries
};

inline constexpr std::size_t kMemoryCategoryCount = kEnumCount<MemoryCategory>;
inline constexpr auto& kMemoryCategories = kEnumerators<MemoryCategory>;

constexpr std::size_t index_of(MemoryCategory category) { return static_cast<std::size_t>(category); }

constexpr std::string_view to_string(MemoryCategory category) {
  constexpr EnumNames<MemoryCategory> kNames{"parameter_shards", "unsharded_parameters", "gradients",
                                             "optimizer",        "activations",          "communication_buffers"};
  return kNames[category];
}

/// Bytes by category.
using CategoryBytes = std::array<std::int64_t, kMemoryCategoryCount>;

}  // namespace fsdpbench
