#pragma once

#include <cstdint>
#include <memory>
#include <random>

#include "backend/backend.h"
#include "backend/device.h"
#include "base/enum_table.h"
#include "config/run_config.h"
#include "plan/plan.h"

namespace fsdpbench::engine {

/// Injected delays of one rank (inject.delay_*, inject.jitter_us, inject.host_delay_us): idle time put in front of an
/// op on its lane, or of its issue on the host.
class Trouble {
 public:
  Trouble(const config::Inject& inject, std::uint64_t seed, int rank);
  /// Lets the host sleep before it issues an op, if it is to be slow.
  void before_issue() const;
  /// Enqueues the delay of the next op on `lane`, if it gets one.
  void before_op(backend::Device& device, Lane lane);

 private:
  std::int64_t fixed_[kLaneCount] = {};  // nanoseconds, by lane
  std::int64_t host_ = 0;
  std::int64_t jitter_ = 0;
  std::mt19937_64 random_;
};

/// The communicators of one rank: one for each plan::Group that the plan has. Making them is collective.
class Communicators {
 public:
  Communicators(backend::RankContext& context, const plan::Groups& groups);

  /// Throws std::logic_error for a group that the plan does not have.
  backend::Communicator& of(plan::Group group);
  /// Summed over all groups.
  backend::WireBytes wire_bytes() const;

 private:
  EnumTable<plan::Group, std::unique_ptr<backend::Communicator>> communicators_;
};

}  // namespace fsdpbench::engine
