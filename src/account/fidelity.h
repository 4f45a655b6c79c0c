#pragma once

#include <optional>
#include <vector>

#include "account/run_metrics.h"
#include "account/run_view.h"
#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "plan/plan.h"

namespace fsdpbench::account {

/// Milliseconds of a rank's median step, by the model and as its records have them.
struct ModelledTime {
  double modelled_ms = 0;
  double observed_ms = 0;
};

/// Fidelity of a machine to what it emulated in real time. `transfer` counts the transfers that had the links of
/// their group to themselves: what a shared one should take follows from all others.
struct Fidelity {
  std::optional<ModelledTime> compute;   ///< absent if computation is real
  std::optional<ModelledTime> transfer;  ///< absent if the link is real, or no transfer was alone
  double excess_pct = 0;                 ///< of both together: observed over modelled, less 100 %
  /// By how much the step exceeds what its own op times allow: lanes began late, for want of a core. Absent where
  /// computation is real, lateness was injected, or some ranks are not in view.
  std::optional<double> late_pct;

  /// Time that the machine added to the modelled step, in its ops and between them together.
  double over_pct() const;
  /// Beyond the limit the times are the machine's, not the model's, and nothing is to be concluded from them.
  bool rated() const;
};
inline constexpr double kFidelityLimitPct = 5;

/// Absent if nothing is emulated, or what is emulated takes no time. `sizes`: by module, as the plan's modules.
/// `metrics`: of the same run.
/// Injected slow ranks and links (inject.slow_*) are part of the model.
std::optional<Fidelity> emulation_fidelity(const RunView& run, const plan::Groups& groups,
                                           const std::vector<plan::ModuleSizes>& sizes, const config::RunConfig& config,
                                           const RunMetrics& metrics);

}  // namespace fsdpbench::account
