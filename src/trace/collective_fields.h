#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/event_stream.h"
#include "trace/facts.h"
#include "trace/op_label.h"

namespace fsdpbench::trace {

/// The fields of NCCL's rows, and how often each communicator was used.
class CollectiveFields {
 public:
  explicit CollectiveFields(const std::vector<ProcessGroup>& groups);

  const std::vector<ProcessGroup>& groups() const { return groups_; }
  /// "[0, 1]"
  const std::string& ranks(std::size_t group) const { return ranks_[group]; }

  /// Number of the next collective on its communicator; counts on.
  std::int64_t next(const CollectiveLabel& collective) { return sequence_.at(collective.group)++; }
  void write(EventStream& events, const CollectiveLabel& collective, std::int64_t sequence) const;

 private:
  std::vector<ProcessGroup> groups_;
  std::vector<std::string> ranks_;
  std::vector<std::int64_t> sequence_;
};

}  // namespace fsdpbench::trace
