#pragma once

#include <array>
#include <memory>

#include "backend/backend.h"
#include "plan/groups.h"

namespace fsdpbench::engine {

/// The communicators of one rank: one for each plan::Group that the plan has. Making them is collective.
class Communicators {
 public:
  Communicators(backend::RankContext& context, const plan::Groups& groups);

  /// Throws std::logic_error for a group that the plan does not have.
  backend::Communicator& of(plan::Group group);
  /// Summed over all groups.
  backend::WireBytes wire_bytes() const;

 private:
  std::array<std::unique_ptr<backend::Communicator>, plan::kGroupCount> communicators_;
};

}  // namespace fsdpbench::engine
