#pragma once

#include <string>
#include <vector>

#include "metrics/cause_report.h"

namespace fsdpbench::metrics {

/// One sentence on what a knob brings: "set K=V: X ms less a step [interval], Y MiB more memory".
std::string knob_sentence(const Counterfactual& knob);

/// One sentence on what to do about a cause: the best of `knobs` that is meant for it and advised, else, for causes
/// that no knob lifts, what the step would take without it. Empty if the gain is not certain, or lost in the noise.
std::string advice(const CauseShare& share, const std::vector<Counterfactual>& knobs);

/// Of link_bound where ranks' own links are not known: follows the advice.
inline constexpr const char* kSlowLinkUnseen =
    " One slow link would look the same: on real links a collective ends on all its ranks at once.";

}  // namespace fsdpbench::metrics
