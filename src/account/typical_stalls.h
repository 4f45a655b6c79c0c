#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "account/find_stalls.h"
#include "account/op_key.h"

namespace fsdpbench::account {

/// A stall of a measured step: what of it repeats, and what does not.
struct ToldStall {
  Stall stall;
  bool jitter = false;  ///< beyond the typical step: it has no cause, nor a late rank
};
/// The cause, or "jitter".
std::string_view name_of(const ToldStall& told);

/// How long each cause keeps each computation waiting in the typical step.
class TypicalStalls {
 public:
  /// Stalls of the one step in `typical`; the other parameters are those of find_stalls().
  TypicalStalls(const StepRecords& typical, const plan::Groups& groups, const std::optional<LinkModel>& link,
                bool prefetches_backward, const EvenRows& even_rows = {});

  /// What find_stalls() found of the rank in place `rank`, told apart: of the stretches between two computations each
  /// cause has as much as it has before the same computation in the typical step, from the first one on; the rest is
  /// jitter. The parts cover the same time, in order. `rank`: one stands for all if the typical step has one rank only.
  std::vector<ToldStall> tell(const StepRecords& step, int rank, const std::vector<Stall>& stalls) const;

 private:
  /// The computation that a stall ends with; the key of no op after the last one.
  using Before = std::vector<std::pair<std::int64_t, OpKey>>;  // by begin
  static Before computations(const StepRecords& step, int rank);
  static OpKey ended_by(const Before& computations, const Stall& stall);

  std::vector<std::map<OpKey, std::array<std::int64_t, kCauseCount>>> ns_;  // by place
};

}  // namespace fsdpbench::account
