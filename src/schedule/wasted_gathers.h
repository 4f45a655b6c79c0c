#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::schedule {

/// Reason why an all-gather need not have been issued.
enum class Waste : std::uint8_t {
  never_used,   ///< no forward, recomputation or backward reads what it brought, and its unit is not gathered again
  used_once,    ///< the same, and a later all-gather of its unit brings it again for a use: gathered twice, used once
  freed_early,  ///< between the last use of what it brought and the first use of what the next all-gather of its unit
                ///< brings, nothing else computes: kept, it would have served both
};
/// The enumerator's own name.
std::string_view to_string(Waste waste);
/// "gathered, never used": for people.
std::string_view words_of(Waste waste);

/// Why such a gather was issued, where that does not depend on who tells it: a configuration or another program's
/// trace.
namespace why_wasted {
inline constexpr std::string_view kFreedBetweenMicrobatches =
    "freed after a microbatch, although the next one begins with it";
inline constexpr std::string_view kFreedAfterForward = "freed after forward, although backward begins with it";
inline constexpr std::string_view kReentrant =
    "a reentrant checkpoint runs the hooks of forward again, which prefetch units whose backward is over";
}  // namespace why_wasted

/// An all-gather of a step that brings what nobody uses, or what was there already.
struct WastedGather {
  Waste waste = Waste::never_used;
  int unit = 0;
  int op = 0;              ///< index of the all-gather into the schedule's ops; freed_early: of the second one
  int other = -1;          ///< used_once: index of the later all-gather; freed_early: of the earlier one; else -1
  std::int64_t bytes = 0;  ///< that a rank sends for this unit: its part, to all ranks of the group but itself
  bool operator==(const WastedGather&) const = default;
};

/// The wasted all-gathers of one step, in the order of issue. Follows buffers from each all-gather through copies out
/// of it to the passes that read them. Units that stay gathered from step to step are left out. Parameters do not
/// change within a step, so whatever was gathered may serve until the optimizer.
std::vector<WastedGather> wasted_gathers(const plan::Plan& plan, const Schedule& schedule);

}  // namespace fsdpbench::schedule
