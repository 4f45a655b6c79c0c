#include "engine/communicators.h"

#include <stdexcept>

namespace fsdpbench::engine {

using plan::Group;

Communicators::Communicators(backend::RankContext& context, const plan::Groups& groups) {
  for (const Group group :
       {Group::shard, Group::shard_separate, Group::reshard, Group::replicate, Group::tensor, Group::expert,
        Group::expert_shard, Group::expert_shard_separate}) {
    if (!groups.exists(group)) continue;
    auto& communicator = communicators_[static_cast<std::size_t>(group)];
    communicator = context.world.split(groups.number(group, context.rank), context.rank);
    communicator->set_name(to_string(group));
  }
}

backend::Communicator& Communicators::of(Group group) {
  const auto& communicator = communicators_[static_cast<std::size_t>(group)];
  if (!communicator) throw std::logic_error("Communicators::of: the plan has no such communicator");
  return *communicator;
}

backend::WireBytes Communicators::wire_bytes() const {
  backend::WireBytes total{};
  for (const auto& communicator : communicators_) {
    if (!communicator) continue;
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += communicator->wire_bytes()[i];
  }
  return total;
}

}  // namespace fsdpbench::engine
