#include "account/cause_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "account/advice.h"
#include "account/counterfactual.h"
#include "account/statistics.h"
#include "account/step_breakdown.h"
#include "account/step_view.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::account {
namespace {

/// Nanoseconds lost to one cause, by op and by late rank.
struct Loss {
  std::int64_t total = 0;
  std::map<OpKey, std::int64_t> by_op;
  std::map<int, std::int64_t> by_late_rank;
};

template <typename Map>
auto largest(const Map& map) {
  return std::max_element(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
}

/// Losses over ranks and steps. Steps may have different schedules, so an op is known by what it is, not by its index.
class Losses {
 public:
  void add(const StepRecords& step, const std::vector<Stall>& stalls) {
    const schedule::Schedule& schedule = step.schedule();
    std::vector<OpKey>& keys = keys_[&schedule];
    if (keys.empty()) keys = op_keys(schedule);
    for (const Stall& stall : stalls) {
      const std::int64_t ns = stall.time.end - stall.time.begin;
      Loss& loss = by_cause_[static_cast<std::size_t>(stall.cause)];
      loss.total += ns;
      if (stall.op >= 0) {
        const auto op = static_cast<std::size_t>(stall.op);
        loss.by_op[keys[op]] += ns;
        ops_.try_emplace(keys[op], &schedule.ops[op]);
      }
      if (stall.late_rank >= 0) loss.by_late_rank[stall.late_rank] += ns;
    }
  }

  const Loss& of(std::size_t cause) const { return by_cause_[cause]; }
  const schedule::Op& op(const OpKey& key) const { return *ops_.at(key); }

 private:
  std::array<Loss, kCauseCount> by_cause_;
  std::map<OpKey, const schedule::Op*> ops_;
  std::map<const schedule::Schedule*, std::vector<OpKey>> keys_;
};

/// As rank_causes(), but small ones are listed, too.
CauseReport every_cause(const RunView& run, const plan::Plan& plan, const schedule::Policy& policy,
                        const std::optional<LinkModel>& link, const EvenRows& even_rows) {
  const MiddleSteps middle = middle_steps(run);
  const bool prefetches_backward = schedule::prefetches_backward(policy.fsdp);
  CauseReport report;
  report.step_ms = report.typical_ms = middle.median_ms;
  Losses losses;
  for (std::size_t s = 0; s < run.steps().size(); ++s) {
    const StepRecords& step = run.steps()[s];
    const bool counts = std::ranges::binary_search(middle.indices, s);
    for (int rank = 0; rank < run.ranks(); ++rank) {
      std::vector<Stall> stalls = find_stalls(step, plan.groups, link, prefetches_backward, rank, even_rows);
      check_partition(stalls, break_down(step, rank).stalled(), fmt::format("rank {}, step {}", rank, step.number()));
      if (counts) losses.add(step, stalls);
      if (s == middle.median && rank == step.slowest_rank()) {
        for (const Stall& stall : stalls) report.example.push_back({stall, false});
        report.example_rank = step.rank_at(rank);
        report.example_place = rank;
        report.example_step = step.number();
      }
    }
  }

  const auto ms = [&](std::int64_t ns) { return static_cast<double>(ns) * middle.ms_per_ns; };
  for (std::size_t c = 0; c < kCauseCount; ++c) report.stalled_ms += ms(losses.of(c).total);
  for (std::size_t c = 0; c < kCauseCount; ++c) {
    const Loss& loss = losses.of(c);
    if (loss.total == 0) continue;
    CauseShare share;
    share.cause = static_cast<Cause>(c);
    share.ms = ms(loss.total);
    share.share_pct = 100 * share.ms / report.step_ms;
    if (!loss.by_op.empty()) {
      const schedule::Op& worst = losses.op(largest(loss.by_op)->first);
      share.op = schedule::op_name(plan, worst);
      if (worst.unit >= 0) share.unit = plan.units[worst.unit].label();
    }
    if (!loss.by_late_rank.empty()) share.late_rank = largest(loss.by_late_rank)->first;
    report.causes.push_back(std::move(share));
  }
  std::ranges::stable_sort(report.causes, [](const CauseShare& a, const CauseShare& b) { return a.ms > b.ms; });
  return report;
}

/// Whether a cause that costs little is worth lifting: without it, something else would have been waited for meanwhile.
bool is_worth_lifting(const CauseShare& share, double step_ms) {
  return kCauses[share.cause].liftable && share.without && share.without->advised &&
         100 * share.without->gain_ms >= kSmallSharePct * step_ms;
}

/// Small causes into small_ms.
void drop_small(CauseReport& report) {
  std::erase_if(report.causes, [&](const CauseShare& share) {
    if (share.share_pct >= kSmallSharePct || is_worth_lifting(share, report.step_ms)) return false;
    report.small_ms += share.ms;
    return true;
  });
}

}  // namespace

CauseReport rank_causes(const RunView& run, const plan::Plan& plan, const schedule::Policy& policy,
                        const std::optional<LinkModel>& link, const EvenRows& even_rows) {
  CauseReport report = every_cause(run, plan, policy, link, even_rows);
  report.even_rows = even_rows;
  drop_small(report);
  return report;
}

CauseReport report_causes(const RunView& run, const schedule::Training& what, const RunMetrics& metrics,
                          const EvenRows& even_rows, const MachineFacts& machine) {
  const std::optional<LinkModel> link = what.config.emulate.link();
  CauseReport report = rank_causes(run, what.plan, what.policy, link, even_rows);
  constexpr double kLeastNoise = 100 * kPracticalThreshold;
  const double noise_ms = std::max(kLeastNoise, metrics.aa_noise_pct.value_or(kLeastNoise)) / 100 * report.step_ms;
  report.no_typical_because = why_no_typical_step(run, what.plan.groups, noise_ms);
  if (!report.no_typical_because.empty()) return report;
  const TypicalStep typical(run, what, noise_ms);
  report.no_typical_because = typical.why_not_of_all();
  if (!report.no_typical_because.empty()) return report;
  const clock::Forecast step = typical.forecast();
  const RunView view(typical.training().schedules, step.traces);
  CauseReport of_typical = every_cause(view, what.plan, what.policy, link, even_rows);

  report.causes = std::move(of_typical.causes);
  for (CauseShare& cause : report.causes) cause.share_pct = 100 * cause.ms / report.step_ms;
  report.small_ms = 0;
  report.typical_ms = of_typical.step_ms;
  report.late_ranks = typical.late_ranks();
  std::vector<Asked> asked;
  for (const CauseShare& cause : report.causes) asked.push_back({cause.cause, cause.late_rank, even_rows});
  std::optional<TypicalStep> contended;
  if (machine.gpus) contended.emplace(run, what, noise_ms, true, clock::most_slowed_computation);
  Counterfactuals found = find_counterfactuals(typical, asked, noise_ms, machine, contended ? &*contended : nullptr);
  report.knobs = std::move(found.knobs);
  for (std::size_t i = 0; i < report.causes.size(); ++i) report.causes[i].without = found.causes[i];
  Evidence evidence{.links_known = typical.knows_links()};
  for (const Cause cause : kEnumerators<Cause>) {
    const std::string_view settings = kCauses[cause].settings;
    const auto sets_it = [&](const std::string& knob) { return knob.starts_with(settings); };
    if (std::ranges::none_of(found.unsaid, sets_it)) evidence.settings[cause] = settings;
  }
  for (const Counterfactual& knob : report.knobs) evidence.knobs.push_back({knob});
  advise(report.causes, evidence);
  drop_small(report);
  const bool prefetches_backward = schedule::prefetches_backward(what.policy.fsdp);
  report.typical_stalls.emplace(view.steps().front(), what.plan.groups, link, prefetches_backward, even_rows);
  const auto example = std::ranges::find(run.steps(), report.example_step, &StepRecords::number);
  std::vector<Stall> stalls;
  for (const ToldStall& told : report.example) stalls.push_back(told.stall);
  report.example = report.typical_stalls->tell(*example, report.example_place, stalls);
  StepJitter& jitter = report.jitter.emplace();
  jitter.ms = report.step_ms - report.typical_ms;
  jitter.share_pct = 100 * jitter.ms / report.step_ms;
  jitter.stalled_ms = report.stalled_ms - of_typical.stalled_ms;
  jitter.computation_ms = jitter.ms - jitter.stalled_ms;
  return report;
}

}  // namespace fsdpbench::account
