#include "clock/op_work.h"

#include "base/enum_table.h"
#include "base/ring.h"
#include "clock/collective_message.h"
#include "clock/emulated_times.h"

namespace fsdpbench::clock {

std::string_view to_string(OpWork::Unit unit) {
  constexpr EnumNames<OpWork::Unit> kNames{"wire_bytes", "flops", "bytes", "pcie_bytes", "host_bytes"};
  return kNames[unit];
}

OpWork work_of(const schedule::Op& op, const schedule::Schedule& schedule, const plan::Groups& groups,
               const std::vector<plan::ModuleSizes>& sizes) {
  if (op.is_collective()) {
    const CollectiveMessage message = message_of(op, groups);
    return {OpWork::Unit::wire_bytes, static_cast<double>(message.hops()),
            static_cast<double>(message.bytes) * message.share()};
  }
  if (const double flops = flops_of(op, sizes); flops > 0) return {OpWork::Unit::flops, 0, flops};
  if (const auto* copy = std::get_if<schedule::Transfer>(&op.work)) {
    return {OpWork::Unit::pcie_bytes, 1, static_cast<double>(copy->bytes)};
  }
  const bool on_host = op.lane == Lane::host_compute;
  return {on_host ? OpWork::Unit::host_bytes : OpWork::Unit::bytes, 1, buffer_bytes(schedule, op)};
}

double buffer_bytes(const schedule::Schedule& schedule, const schedule::Op& op) {
  double bytes = 0;
  const schedule::Operands operands = op.operands();
  for (const schedule::BufferList* list : {&operands.reads, &operands.writes}) {
    for (const schedule::BufferId id : *list) {
      bytes += static_cast<double>(schedule.buffers[static_cast<std::size_t>(id)].bytes);
    }
  }
  return bytes;
}

}  // namespace fsdpbench::clock
