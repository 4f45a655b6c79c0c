#pragma once

#include <cstdint>

namespace fsdpbench {

/// Which processors a rank's threads may use.
enum class Binding : std::uint8_t {
  none,   ///< all, or those that its launcher gave it
  numa,   ///< those of one NUMA node: near its GPU; ranks on CPUs take turns
  cores,  ///< a share of its own of this host's cores
};

}  // namespace fsdpbench
