#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/lane.h"
#include "base/random.h"
#include "plan/plan.h"
#include "schedule/op.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// A random number of one op in one step.
constexpr std::uint64_t op_key(std::uint64_t seed, std::int64_t step, std::size_t op) {
  return mixed(seed ^ mixed(static_cast<std::uint64_t>(step) << 32 | op));
}

/// The key of one rank at that op. A Weyl sequence from a key that is random already needs one multiplication more.
constexpr std::uint64_t of_rank(std::uint64_t key, std::size_t rank) {
  return mixed(key + rank * 0x9e3779b97f4a7c15ULL);
}

/// Random numbers one after another, the same ones from the same seed everywhere.
class Sequence {
 public:
  explicit Sequence(std::uint64_t seed) : key_(mixed(seed + 0x9e3779b97f4a7c15ULL)) {}

  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  ///< in [0, 1)
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(uniform() * static_cast<double>(count)); }
  /// Mean 0, variance 1; the sum of twelve, which is near enough to normal for what it is asked for.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::uint64_t next() { return of_rank(key_, count_++); }

  std::uint64_t key_;
  std::size_t count_ = 0;
};

/// Cost of one op, the same on every rank, before factors and jitter: whole nanoseconds.
struct OpCost {
  double run_ns = 0;   ///< on its lane; of a collective, from the arrival of its last peer until its bytes flow
  double link_ns = 0;  ///< of a collective, on top: while its bytes flow, with the link to themselves
  int fabric = 0;      ///< of a collective: which of a rank's links its bytes go through
  int scatter = 0;     ///< which of the jitter's distributions it has
};
/// Costs by op of a schedule.
using StepCosts = std::vector<OpCost>;

/// Costs of the host and of starting ops, the same on every rank: whole nanoseconds.
struct HostCosts {
  double issue_ns = 0;   ///< to issue an op
  double launch_ns = 0;  ///< from an op's issue until a lane that is idle begins it
  double gap_ns = 0;     ///< from the end of an op until a lane begins the next one, which was there already
  /// From an event until the op on another lane, or the host, that waited for it goes on; and from the end of a
  /// collective until another lane begins the next one on its communicator.
  double wake_ns = 0;
  double step_ns = 0;   ///< from the end of a rank's step until it begins to issue the next
  double start_ns = 0;  ///< when all hosts begin with the first step
};

/// Factors by which ops take longer or shorter than they should, drawn anew for each op, step and rank (a collective:
/// and group). What is drawn follows from seed, step, op and rank alone, so two configurations with the same seed have
/// the same luck, op by op.
class Jitter {
 public:
  Jitter() = default;  ///< none
  /// `distributions`: at least one, each of residuals: what an op takes over what it should, as measured or given, at
  /// least one, each > 0; any of them is as likely as another (bootstrap: tails stay). A pause comes with probability
  /// `pause_chance` in [0, 1) an op of the compute lane and lasts `pause_ns`.
  Jitter(std::uint64_t seed, std::vector<std::vector<double>> distributions, double pause_chance = 0,
         double pause_ns = 0);

  /// Residuals of a lognormal distribution with median 1: its quantiles at (i + 1/2) / count.
  static std::vector<double> lognormal(double sigma, std::size_t count = 1024);

  bool any() const { return !residuals_.empty(); }
  /// by_rank[k] = (by_rank[k] times a residual, plus a pause now and then), in whole nanoseconds, for ranks first + k.
  /// `pauses`: whether there may be one. `distribution`: by number, OpCost::scatter; where there is but one, all have
  /// it.
  void apply(std::int64_t step, std::size_t op, std::size_t first, bool pauses, std::span<double> by_rank,
             int distribution = 0) const;

 private:
  std::uint64_t seed_ = 0;
  std::vector<double> residuals_;  // a power of two of each distribution's, sorted
  std::uint64_t pause_below_ = 0;  // of 2^32
  double pause_ns_ = 0;
  std::size_t distributions_ = 0;
};

/// Trouble for study: how much later than they could ops with work begin. Not part of the op's own time, as an
/// executor's injected delay is not.
struct Delays {
  std::array<double, kLaneCount> fixed_ns{};  ///< by lane
  int rank = -1;                              ///< that has the fixed ones; -1: all
  double uniform_ns = 0;                      ///< every op of every lane and rank 0 to so much, whole nanoseconds
  std::uint64_t seed = 0;
  std::vector<std::array<double, kLaneCount>> by_rank_ns;  ///< on top, by rank and lane; empty: none

  bool any() const { return uniform_ns > 0 || rank >= 0 || !by_rank_ns.empty() || fixed_ns != decltype(fixed_ns){}; }
  /// Adds them to the begins of op `op` on ranks first, first + 1 …
  void add(std::int64_t step, std::size_t op, Lane lane, std::size_t first, std::span<double> begin) const;
};

/// Times of everything in a run, on every rank and in every step. A pure function: asked twice, it says the same.
struct OpTimes {
  /// Time of an op.
  enum class Ops : std::uint8_t {
    by_cost,      ///< what `steps` says, times factors and jitter; transfers share the links on which they meet
    given,        ///< what `given` says, whatever is beside it
    given_alone,  ///< what `given` says; but transfers, which were alone on their links there, share them
  };
  /// Host time to issue an op.
  enum class Issue : std::uint8_t {
    by_cost,  ///< host.issue_ns, and what `own_issue` says
    given,    ///< what `given_issue` says
  };
  Ops ops = Ops::by_cost;
  Issue issue = Issue::by_cost;

  std::vector<StepCosts> steps;  ///< as schedule::Schedules::steps; the last one repeats
  HostCosts host;
  std::vector<double> compute_factor;  ///< by rank, of what runs on the compute lane; empty: 1
  std::vector<double> link_factor;  ///< by rank, of its links; a transfer ends when its slowest member does; empty: 1
  Jitter jitter;
  /// Measured scatter of such ops, for a Jitter to draw from: by OpCost::scatter, residuals; empty: not known.
  std::vector<std::vector<double>> measured_scatter;
  Delays delays;
  /// Nanoseconds by rank and op. One rank: all take the same.
  using ByRank = std::vector<std::vector<std::int64_t>>;
  /// By step, the last one repeats: of a collective from the arrival of its last peer. Where transfers share links,
  /// they do so after run_ns of `steps`, on the fabric there.
  std::vector<ByRank> given;
  std::vector<ByRank> given_issue;
  /// By step, the last one repeats, and op: what the host takes on top to issue it, on every rank alike. Empty:
  /// nothing.
  std::vector<std::vector<double>> own_issue;

  /// Algorithm of each collective of the steady schedule, by op: "ring, simple, inter". Empty where nothing was chosen.
  std::vector<std::string> choices;
  std::int64_t workspace_bytes = 0;  ///< what libraries of kernels hold of PyTorch's allocator

  bool are_given() const { return ops != Ops::by_cost; }
  const StepCosts& of_step(std::size_t step) const { return steps[step < steps.size() ? step : steps.size() - 1]; }
  const ByRank& given_of(std::size_t step) const { return given[step < given.size() ? step : given.size() - 1]; }
  const ByRank& issue_of(std::size_t step) const {
    return given_issue[step < given_issue.size() ? step : given_issue.size() - 1];
  }
  const std::vector<double>& own_issue_of(std::size_t step) const {
    return own_issue[step < own_issue.size() ? step : own_issue.size() - 1];
  }
  /// Whether two ranks may take different times.
  bool ranks_differ() const {
    if (are_given()) return given.front().size() > 1;
    return !compute_factor.empty() || !link_factor.empty() || jitter.any() || delays.rank >= 0 || delays.uniform_ns > 0;
  }
};

/// Whether the ops of a step, one after another on the slowest rank, take longer than 104 days: a double holds every
/// nanosecond of less.
bool too_long(const OpTimes& times);

/// A run on a computed clock: the same schedules that an executor issues, walked for all ranks with given times.
/// Nothing sleeps and nothing is random: the same arguments give the same nanoseconds.
///
/// An op begins when its lane is free, the host has issued it, what it waits for is over, and, for a collective, its
/// communicator is free; its transfer when the last rank of its group has come so far. Lanes and communicators are
/// first come, first served in the order of issue. A step of a rank ends when all its lanes are idle; then the rank's
/// host begins with the next one, whatever the others do.
class Replay {
 public:
  virtual ~Replay() = default;

  /// Walks the next step of all ranks. `recorded`: the ranks (`rank` says which) whose step is appended to their
  /// records and windows, as an executor would have written them.
  virtual void step(std::span<trace::RankTrace> recorded) = 0;

  /// Times of the last step, in whole nanoseconds from the beginning of the run. By rank; one entry for all if no two
  /// ranks may differ.
  struct StepTimes {
    std::vector<double> begin_ns;
    std::vector<double> end_ns;
  };
  virtual const StepTimes& last_step() const = 0;
};

/// The arguments must outlive the replay. Chooses the walk: op by op where no two transfers can meet on a link (or
/// times are given), else in the order of time, in fair shares (base/link_model.h). Both give the same where both
/// apply.
std::unique_ptr<Replay> make_replay(const schedule::Schedules& schedules, const plan::Groups& groups,
                                    const OpTimes& times);

/// Whether two communicators of a rank may use one of its links at once.
bool links_are_shared(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times);

/// Durations of a schedule's ops on one rank, in nanoseconds, by op index. A collective's duration counts from
/// the moment its last peer has arrived.
using OpDurations = std::vector<std::int64_t>;

/// The least time in which the schedule can run with these durations: every op starts as soon as its lane, its waits,
/// the host's waits and, for a collective, its communicator and its peers allow; issuing costs nothing. A longest
/// path, computed op by op in (max, +). `by_rank`: one entry a rank of `groups`.
std::int64_t max_plus_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                            std::vector<OpDurations> by_rank);

}  // namespace fsdpbench::clock
