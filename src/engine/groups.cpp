#include "engine/groups.h"

#include <stdexcept>

namespace fsdpbench::engine {

using schedule::Group;

Groups::Groups(backend::RankContext& context, const plan::Plan& plan, int reshard_group,
               bool separate_reduce_scatter) {
  const int rank = context.rank;
  const auto split = [&](Group group, int color) {
    auto& communicator = communicators_[static_cast<std::size_t>(group)];
    communicator = context.world.split(color, rank);
    communicator->set_name(to_string(group));
  };
  if (plan.mesh.shard > 1) {
    split(Group::shard, plan.mesh.replica(rank));
    if (separate_reduce_scatter) split(Group::shard_separate, plan.mesh.replica(rank));
    if (reshard_group > 1 && reshard_group < plan.mesh.shard) split(Group::reshard, rank / reshard_group);
  }
  if (plan.mesh.replicate > 1) split(Group::replicate, plan.mesh.shard_index(rank));
}

backend::Communicator& Groups::of(Group group) {
  const auto& communicator = communicators_[static_cast<std::size_t>(group)];
  if (!communicator) throw std::logic_error("Groups::of: the plan has no such communicator");
  return *communicator;
}

backend::WireBytes Groups::wire_bytes() const {
  backend::WireBytes total{};
  for (const auto& communicator : communicators_) {
    if (!communicator) continue;
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += communicator->wire_bytes()[i];
  }
  return total;
}

}  // namespace fsdpbench::engine
