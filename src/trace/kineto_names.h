#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/activity.h"
#include "base/dtype.h"
#include "trace/op_label.h"

namespace fsdpbench::trace {

// The names by which kineto's readers know classes of rows: see FORMAT.md, "The file of a rank".

/// c10's name of a collective: "_allgather_base".
std::string_view torch_name(CollectiveKind kind);
/// c10's name of an element type.
std::string_view torch_name(DType dtype);
/// The call of CUDA that an op of this class looks like.
std::string_view launch_name(OpCategory category);

/// Sets `name` of the row that stands for the whole op number `index` on the device, and returns its cat.
std::string_view name_op_row(const OpLabel& op, std::int32_t index, std::string& name);
/// Likewise of the row of one of its activities, which the device calls `device_name`: that name, or where readers
/// would take it for another class than the op's, one that holds it.
std::string_view name_activity_row(const OpLabel& op, std::int32_t index, Activity::Kind kind,
                                   std::string_view device_name, std::string& name);

}  // namespace fsdpbench::trace
