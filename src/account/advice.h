#pragma once

#include <optional>
#include <string>
#include <string_view>
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

/// What advice may rest on beside causes and replays, and in whose words it is given. All of it but settings and knobs
/// is of another program's job, whose rows show more than a schedule has.
struct Evidence {
  EnumTable<Cause, std::string> settings{};  ///< of the program, against that cause; empty: it has none that is known
  std::vector<ReplayedKnob> knobs{};         ///< that gain something, the most first
  bool links_known = true;                   ///< those of single ranks
  std::string absent{};                      ///< what, beside a link, may be to blame and is not in the files
  bool pytorch = true;                       ///< the program is written in PyTorch's words
  bool shards = false, data_parallel = false, experts = false;
  std::string_view late_phase = "forward";  ///< which has most of what late gathers expose
  double late_launches_pct = 0;             ///< of computation that began right after its launch
  std::string sync_at{};                    ///< where the host waited for the device first
  std::optional<double> imbalance{};        ///< rows of the busiest rank of experts over the mean
  int busiest_rank = -1;
  bool two_halves = false;         ///< of a batch: one computes while the other's rows are exchanged
  std::string smaller_messages{};  ///< "; parameters in bf16 are half the bytes"; empty: they are
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
