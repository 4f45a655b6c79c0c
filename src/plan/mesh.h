#pragma once

namespace fsdpbench::plan {

/// Ranks as replicate x shard: rank = replica * shard + index. Shard groups are runs of consecutive ranks (the fast
/// links of a node), replicate groups are the ranks with equal index.
struct Mesh {
  int shard = 1;      ///< ranks that split one unit
  int replicate = 1;  ///< groups that hold equal shards

  int ranks() const { return shard * replicate; }
  int shard_index(int rank) const { return rank % shard; }
  int replica(int rank) const { return rank / shard; }
};

}  // namespace fsdpbench::plan
