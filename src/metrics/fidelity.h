#pragma once

#include <optional>
#include <vector>

#include "config/run_config.h"
#include "metrics/run_view.h"
#include "plan/groups.h"
#include "plan/module_sizes.h"

namespace fsdpbench::metrics {

/// Milliseconds of a rank's median step, by the model and as its records have them.
struct ModelledTime {
  double modelled_ms = 0;
  double observed_ms = 0;
};

/// How well a machine kept up with what it emulated in real time. `transfer` counts the transfers that had the links of
/// their group to themselves: what a shared one should take follows from all others.
struct Fidelity {
  std::optional<ModelledTime> compute;   ///< absent if computation is real
  std::optional<ModelledTime> transfer;  ///< absent if the link is real, or no transfer was alone
  double excess_pct = 0;                 ///< of both together: observed over modelled, less 100 %

  /// Beyond the limit the times are the machine's, not the model's, and nothing is to be concluded from them.
  bool rated() const;
};
inline constexpr double kFidelityLimitPct = 5;

/// Absent if nothing is emulated, or what is emulated takes no time. `sizes`: by module, as the plan's modules.
/// Injected slow ranks and links (inject.slow_*) are part of the model.
std::optional<Fidelity> emulation_fidelity(const RunView& run, const plan::Groups& groups,
                                           const std::vector<plan::ModuleSizes>& sizes,
                                           const config::RunConfig& config);

}  // namespace fsdpbench::metrics
