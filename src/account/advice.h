#pragma once

#include <optional>
#include <string>
#include <vector>

#include "account/cause.h"
#include "account/counterfactual.h"
#include "base/enum_table.h"

namespace fsdpbench::account {

/// A setting that was turned in a replay.
struct ReplayedKnob {
  Counterfactual gain;
  std::string words = {};  ///< the setting in the words of the program; empty: its words are this program's keys, or
                           ///< nobody knows them
  bool sayable = true;     ///< it can be set there

  bool advised() const { return gain.advised && sayable; }
};

/// Evidence that advice may rest on, and whose terms it uses.
struct Evidence {
  EnumTable<Cause, std::string> settings{};  ///< of the program, against that cause; empty: none is known
  std::vector<ReplayedKnob> knobs{};         ///< that gain something, the most first
  bool links_known = true;                   ///< those of single ranks
  /// Sentences of another program's rows on a cause that was not replayed, to follow what kCauses says of it;
  /// may be "". Absent: too little to advise anything.
  EnumTable<Cause, std::optional<std::string>> seen{};
  std::string absent{};  ///< what, beside a link, may be to blame and is not in the files
};

/// Says what would help against each of `causes`, CauseShare::advice: a setting whose replay gains for certain and that
/// the program can be told; else what the step would take without the cause, if that is certain to gain; where nothing
/// was replayed what the rows show, of causes of at least 1 % of the step. Empty: there is no evidence that anything
/// would.
void advise(std::vector<CauseShare>& causes, const Evidence& evidence);

/// The first of `knobs` that would be advised; null: there is none.
const ReplayedKnob* best_knob(const std::vector<ReplayedKnob>& knobs, std::optional<Cause> against = {});

/// One sentence on what a knob brings: "set K=V: X ms less a step [interval], Y MiB more memory". `words`: the setting
/// in those of another program; may be empty.
std::string knob_sentence(const Counterfactual& knob, const std::string& words = {});

}  // namespace fsdpbench::account
