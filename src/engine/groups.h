#pragma once

#include <array>
#include <memory>

#include "backend/backend.h"
#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::engine {

/// The communicators of one rank: one for each schedule::Group that the plan needs. Making them is collective.
class Groups {
 public:
  /// `reshard_group`: ranks that share a unit between forward and backward; 0 or 1: none.
  Groups(backend::RankContext& context, const plan::Plan& plan, int reshard_group, bool separate_reduce_scatter);

  backend::Communicator& of(schedule::Group group);
  /// Summed over all groups.
  backend::WireBytes wire_bytes() const;

 private:
  std::array<std::unique_ptr<backend::Communicator>, schedule::kGroupCount> communicators_;
};

}  // namespace fsdpbench::engine
