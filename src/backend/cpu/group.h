#pragma once

#include <memory>

#include "backend/cpu/collective_rules.h"
#include "backend/device.h"

namespace fsdpbench::backend::cpu {

/// Where the members of a communicator meet and move bytes between their memories: threads of one process or
/// processes.
class Group {
 public:
  virtual ~Group() = default;

  virtual int size() const = 0;

  /// Takes part in a collective; called by every member, from a lane's thread, for one collective at a time.
  /// Returns when the caller's buffers are its own again and the modelled links (if any) are done.
  virtual void run(int rank, const CollectiveCall& call, Stamp& stamp) = 0;

  /// Blocks until all members have called it. Host threads only.
  virtual void host_barrier() = 0;
  /// As Communicator::split; `new_rank` becomes the caller's rank in the group returned. Host threads only.
  virtual std::shared_ptr<Group> split(int rank, int color, int key, int& new_rank) = 0;

  /// If `world_rank` (of all ranks) is a member: it will call nothing more, and whoever waits for it fails instead of
  /// hanging. Returns at once.
  virtual void member_ended(int world_rank) = 0;
  /// After member_ended() of a rank of this process: blocks until that has been settled with the others.
  virtual void wait_ended() = 0;
};

}  // namespace fsdpbench::backend::cpu
