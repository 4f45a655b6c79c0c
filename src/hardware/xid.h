#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdpbench {

/// What NVIDIA's list of Xids (errors that the driver reports of a GPU) says of those that a training meets; empty: it
/// is not among them.
std::string_view xid_meaning(std::uint64_t xid);

/// An Xid that a program's own error causes, as a rule: it accuses no hardware.
bool is_xid_of_programs(std::uint64_t xid);

/// "Xid 79 (the GPU has fallen off the bus) 2 times"
std::string xid_text(std::uint64_t xid, std::int64_t times = 1);

}  // namespace fsdpbench
