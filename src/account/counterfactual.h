#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "account/cause.h"
#include "account/find_stalls.h"
#include "account/statistics.h"
#include "account/typical_step.h"
#include "clock/machine.h"
#include "config/run_config.h"

namespace fsdpbench::account {

/// A key that could be turned from where a configuration has it.
struct Knob {
  Cause cause = Cause::unknown;  ///< that it is meant for
  std::string set;               ///< "key=value", as --set takes it
  config::RunConfig config;      ///< with that value
  bool sayable = true;           ///< the preset's system has a word for it, or none for the value in force either
};

/// One value of each key that shapes communication and could be better than what the configuration has: the next one up
/// of a limit, the mode that prefetches. Whether it is better is for a replay to say.
std::vector<Knob> knobs_of(const config::RunConfig& config);

/// The configuration in which a cause that a knob lifts cannot be: all gathers prefetched, no limit, as many buffers as
/// there are reductions, a communicator for each kind, no injected sync. As it is for any other cause.
config::RunConfig lifted(Cause cause, config::RunConfig config);

/// The typical step without one thing: what the step gains is what that thing costs.
struct Counterfactual {
  Cause cause = Cause::unknown;  ///< that is taken away, or that the knob is meant for
  std::string set;               ///< "key=value" of a knob; empty: the cause itself
  int late_rank = -1;            ///< stragglers: without whose lateness
  double step_ms = 0;            ///< the step would take
  double gain_ms = 0;            ///< less than the typical one; negative: more
  double ci_low = 0, ci_high = 0;
  IntervalKind interval =
      IntervalKind::one_value;             ///< of the gain; one value: every step took the same, or there is one
  std::optional<std::int64_t> more_bytes;  ///< of peak memory; knobs that gain
  /// Some that the run does not have, or larger ones, or on a communicator that it does not have, where they meet
  /// others on their links: their times are guesses.
  bool adds_collectives = false;
  bool advised = false;  ///< the interval is above 0, the gain above the noise, and the preset's system can be told
};

/// Replays the typical step without each of `causes` (`late_rank`: of a straggler, -1 elsewhere), and with each knob
/// that could be turned from where the configuration has it.
///
/// [Note: counterfactuals]
/// Where a cause is times (a link's bytes, its latency, a late rank, a slow link, the host, copies, the ends of the
/// step, waits for a core, late lanes) these are taken out of the replay: bytes flow at once, hops, issuing or copies
/// take nothing, the late rank, or the slow link, takes what the others take, exchanges and products of experts take
/// what even rows take. Where a knob is meant (prefetch, limits,
/// buffers, communicators, syncs) the schedule is built anew. Gains of several causes do not add up: each is what its
/// removal alone would bring, and what one hides another may show. The interval resamples the measured steps
/// clock::Uncertainty::kDraws times and replays both typical steps of each draw: from the least to the greatest gain
/// are 95 % of the chance.
struct Asked {
  Cause cause = Cause::unknown;
  int late_rank = -1;
  EvenRows even_rows = {};  ///< of the run (find_stalls.h), for Cause::expert_imbalance
};
struct Counterfactuals {
  std::vector<Counterfactual> causes;  ///< as asked
  std::vector<Counterfactual> knobs;   ///< that gain something, the most first; without any that runs out of memory
  std::vector<std::string> unsaid;     ///< "key=value" of knobs that the preset's system has no word for
};
/// Facts about the machine of a run that its op times do not tell.
struct MachineFacts {
  /// Made a simulated run, and knows more than its op times tell: what a schedule that is built anew takes, over what
  /// the run's takes, is what it says. Null: there is none.
  const clock::Machine* clock = nullptr;
  /// Peak memory of a training under the allocator of its framework; absent if it runs out of memory. Empty: nobody
  /// knows.
  std::function<std::optional<std::int64_t>(const schedule::Training&)> peak_bytes = {};
  bool gpus = false;  ///< they computed: beside collectives that is slower, nobody knows by how much
};
/// `noise_ms`: gains up to it are not advised, and knobs that gain no more are left out. `contended`: the typical step
/// with a guess at what computation loses beside collectives, so that a schedule that puts other computation there may
/// gain less, or more, than its replay says: one end of the interval goes as far. Null: the replay knows.
Counterfactuals find_counterfactuals(const TypicalStep& typical, const std::vector<Asked>& causes, double noise_ms,
                                     const MachineFacts& machine = {}, const TypicalStep* contended = nullptr);
/// Gain of another valid configuration of the same training. Throws an Error if that cannot be replayed.
Counterfactual find_gain(const TypicalStep& typical, const config::RunConfig& other, double noise_ms);

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

}  // namespace fsdpbench::account
