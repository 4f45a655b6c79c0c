#pragma once

#include <optional>
#include <string>
#include <vector>

#include "account/cause.h"
#include "account/counterfactual.h"

namespace fsdpbench::account {

/// One cause over a whole run. Milliseconds are means over all ranks in the typical step.
struct CauseShare {
  Cause cause = Cause::unknown;
  double ms = 0;
  double share_pct = 0;                   ///< of the step
  std::string unit;                       ///< label of the unit that lost most to it; empty: none
  std::string op;                         ///< the op waited for there, as traces name it
  int late_rank = -1;                     ///< stragglers: who came last most of the time
  std::optional<Counterfactual> without;  ///< the typical step without it; absent without a typical step
  std::string advice;                     ///< what would help: a sentence, empty if nothing is known for certain
};

/// One sentence on what a knob brings: "set K=V: X ms less a step [interval], Y MiB more memory". `words`: the setting
/// in those of another program; may be empty.
std::string knob_sentence(const Counterfactual& knob, const std::string& words = {});

/// One sentence on what the typical step would take without a cause, and what can be done: `share.without` is there.
/// `settings`: of the program, against that cause; may be empty.
std::string without_sentence(const CauseShare& share, const std::string& settings);

/// One sentence on what to do about a cause: the best of `knobs` that is meant for it and advised, else, for causes
/// that no knob lifts, what the step would take without it. Empty if the gain is not certain, or lost in the noise.
std::string advice(const CauseShare& share, const std::vector<Counterfactual>& knobs);

/// Follows the advice for link_bound if the links of single ranks are not known.
inline constexpr const char* kSlowLinkUnseen =
    " One slow link would look the same: on real links a collective ends on all its ranks at once.";

}  // namespace fsdpbench::account
