#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/groups.h"
#include "plan/module_sizes.h"
#include "schedule/schedule.h"

namespace fsdpbench::clock {

/// How much an op does, in what its time is thought to be made of.
struct OpWork {
  enum class Unit : std::uint8_t {
    wire_bytes,  ///< a collective: that a rank sends round the ring; `fixed` are its hops
    flops,       ///< of matrix products and attention
    bytes,       ///< all else on a device: of the buffers that it touches; `fixed` is 1
    pcie_bytes,  ///< copies between device and host; `fixed` is 1
    host_bytes,  ///< as bytes, of what the host computes
  };
  Unit unit = Unit::bytes;
  double fixed = 0;
  double amount = 0;
};

/// The enumerator's own name.
std::string_view to_string(OpWork::Unit unit);
/// Bytes of the buffers that an op of `schedule` reads and writes.
double buffer_bytes(const schedule::Schedule& schedule, const schedule::Op& op);

/// `op`: with work, one of `schedule`. `sizes`: of each module.
OpWork work_of(const schedule::Op& op, const schedule::Schedule& schedule, const plan::Groups& groups,
               const std::vector<plan::ModuleSizes>& sizes);

}  // namespace fsdpbench::clock
