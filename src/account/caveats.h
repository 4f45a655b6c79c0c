#pragma once

#include <optional>
#include <string>
#include <vector>

#include "account/fidelity.h"
#include "account/run_metrics.h"

namespace fsdpbench::account {

/// Noise up to this never stands in the way of what a run is meant to show …
inline constexpr double kQuietPct = 1;
/// … and above this it always does.
inline constexpr double kNoisyPct = 5;

/// Caveats to read before the first number: sentences, the gravest first, none if all is well. An emulation
/// that the machine did not keep up with, in its ops or between them; A/A noise above kNoisyPct, or above kQuietPct and
/// the exposed share of the step; more ranks that really compute on this machine (`computing_ranks`) than it has
/// `cores`.
std::vector<std::string> caveats(const RunMetrics& metrics, const std::optional<Fidelity>& fidelity,
                                 int computing_ranks, int cores);

/// Why a run is not rated, as a sentence; empty if it is.
std::string why_not_rated(const std::optional<Fidelity>& fidelity);

}  // namespace fsdpbench::account
