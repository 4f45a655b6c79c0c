#include "trace/collective_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trace/kineto_names.h"

namespace fsdpbench::trace {

CollectiveFields::CollectiveFields(const std::vector<ProcessGroup>& groups)
    : groups_(groups), sequence_(groups.size(), 0) {
  for (const ProcessGroup& group : groups_) ranks_.push_back(fmt::format("[{}]", fmt::join(group.ranks, ", ")));
}

void CollectiveFields::write(EventStream& events, const CollectiveLabel& collective, std::int64_t sequence) const {
  const ProcessGroup& group = groups_.at(collective.group);
  const auto size = static_cast<std::int64_t>(group.ranks.size());
  events.arg(field::kCollectiveName, torch_name(collective.kind));
  events.arg(field::kInElements, collective.count * (collective.kind == CollectiveKind::reduce_scatter ? size : 1));
  events.arg(field::kOutElements, collective.count * (collective.kind == CollectiveKind::all_gather ? size : 1));
  events.arg(field::kGroupSize, size);
  events.arg(field::kDtype, torch_name(collective.dtype));
  events.arg(field::kGroupName, group.name);
  events.arg(field::kGroupDescription, group.description);
  events.arg(field::kGroupRanks, ranks_[collective.group]);
  events.arg(field::kSequence, sequence);
}

}  // namespace fsdpbench::trace
