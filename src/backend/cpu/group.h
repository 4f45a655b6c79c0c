#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "backend/cpu/barrier.h"
#include "backend/cpu/link.h"

namespace fsdpbench::backend::cpu {

class World;

/// What one member calls. Buffers as in Communicator; `output` is the only buffer of all_reduce and broadcast.
struct CollectiveArguments {
  Collective kind = Collective::all_gather;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  float scale = 1.0F;
  int root = 0;
};

/// Bytes each of `size` ranks sends in a ring, rounded down where the message does not split evenly.
std::int64_t wire_bytes(const CollectiveArguments& call, int size);
/// Steps of the ring, each of which pays the latency once.
int hops(Collective kind, int size);

/// The shared side of a communicator: where its members meet and move bytes between their memories.
class Group {
 public:
  /// `world_ranks`: the members, in group order.
  Group(World& world, std::vector<int> world_ranks);

  int size() const { return static_cast<int>(world_ranks_.size()); }

  /// Takes part in a collective; called by every member, from a lane's thread, for one collective at a time.
  /// Returns when the caller's buffers are its own again and the modelled links (if any) are done.
  void run(int rank, const CollectiveArguments& call, Stamp& stamp);

  /// Blocks until all members have called it. Host threads only.
  void host_barrier() { host_barrier_.arrive_and_wait(); }
  /// As Communicator::split; `new_rank` becomes the caller's rank in the group returned. Host threads only.
  std::shared_ptr<Group> split(int rank, int color, int key, int& new_rank);
  /// If the world's `world_rank` is a member: it will call nothing more.
  void member_ended(int world_rank);

 private:
  struct SplitRequest {
    int color = 0;
    int key = 0;
    std::shared_ptr<Group> group;
  };

  void meet(const CollectiveArguments& call);
  void check_match() const;
  void move(int rank, const CollectiveArguments& call);
  void pull_slices(int rank, const CollectiveArguments& call) const;
  void all_reduce(int rank, const CollectiveArguments& call);
  std::vector<const std::byte*> inputs_at(std::int64_t first_byte) const;

  World& world_;
  const std::vector<int> world_ranks_;
  std::vector<CollectiveArguments> calls_;  ///< by rank; valid between the meeting and the parting
  std::int64_t all_arrived_ns_ = 0;
  std::shared_ptr<Transfer> transfer_;
  Barrier lane_barrier_;
  Barrier host_barrier_;
  std::vector<SplitRequest> split_requests_;
};

}  // namespace fsdpbench::backend::cpu
