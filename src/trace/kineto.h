#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/lane.h"
#include "trace/event_reader.h"
#include "trace/facts.h"

namespace fsdpbench::trace {

// The names and fields by which kineto's readers know classes of rows: see FORMAT.md, "The file of a rank".

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

/// The fields of NCCL's rows, and how often each communicator was used.
class CollectiveFields {
 public:
  explicit CollectiveFields(const std::vector<ProcessGroup>& groups);

  const std::vector<ProcessGroup>& groups() const { return groups_; }
  /// "[0, 1]", all of them
  const std::string& ranks(std::size_t group) const { return ranks_[group]; }

  /// Number of the next collective on its communicator; counts on.
  std::int64_t next(const CollectiveLabel& collective) { return sequence_.at(collective.group)++; }
  /// Adds the fields to the args of the event at hand; `sequence` as next() gave it.
  void write(EventStream& events, const CollectiveLabel& collective, std::int64_t sequence) const;

 private:
  std::vector<ProcessGroup> groups_;
  std::vector<std::string> ranks_;
  std::vector<std::string> some_ranks_;
  std::vector<std::int64_t> sequence_;
};

}  // namespace fsdpbench::trace
