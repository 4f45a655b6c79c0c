#pragma once

#include "plan/mesh.h"
#include "schedule/op.h"

namespace fsdpbench::metrics {

/// Whether ranks a and b meet in a collective of `group`. `reshard_group`: size of Group::reshard.
inline bool same_group(schedule::Group group, const plan::Mesh& mesh, int reshard_group, int a, int b) {
  switch (group) {
    case schedule::Group::none: return a == b;
    case schedule::Group::shard:
    case schedule::Group::shard_separate: return mesh.replica(a) == mesh.replica(b);
    case schedule::Group::reshard: return a / reshard_group == b / reshard_group;
    case schedule::Group::replicate: return mesh.shard_index(a) == mesh.shard_index(b);
  }
  return false;
}

/// Ranks in one such group.
inline int group_size(schedule::Group group, const plan::Mesh& mesh, int reshard_group) {
  switch (group) {
    case schedule::Group::none: return 1;
    case schedule::Group::shard:
    case schedule::Group::shard_separate: return mesh.shard;
    case schedule::Group::reshard: return reshard_group;
    case schedule::Group::replicate: return mesh.replicate;
  }
  return 1;
}

}  // namespace fsdpbench::metrics
