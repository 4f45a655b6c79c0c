#pragma once

#include <nlohmann/json_fwd.hpp>

#include "record/table.h"

namespace fsdpbench::app {

/// What the GPUs and network cards of this host share, and their processors: hardware/topology_matrix.h. No rows where
/// there are neither.
Table topology_table();
/// The same, for files; null where there are neither.
nlohmann::json topology_json();

/// Below the table.
inline constexpr const char* kTopologyWords =
    "NV n: n NVLinks; over PCIe PIX: one switch, PXB: several, PHB: a host bridge, NODE: two of one NUMA node, SYS: "
    "another NUMA node\n";

}  // namespace fsdpbench::app
