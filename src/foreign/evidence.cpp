#include "foreign/evidence.h"

#include <fmt/format.h>

#include "base/dtype.h"
#include "base/enum_table.h"
#include "config/words/words.h"

namespace fsdpbench::foreign {
namespace {

using account::Cause;

/// Why nothing can be said of links; empty: the files of all ranks are here.
std::string absent_ranks(const JobTrace& job, const Explanation& explained) {
  const int here = static_cast<int>(job.ranks.size()), all = job.ranks.front().world_size.value_or(0);
  if (here > 1 && here >= all) return {};
  if (here == 1 && all <= 1 && explained.communication_ms <= 0) return {};
  return fmt::format("the link, or a rank whose file is not here ({}): give the files of all ranks",
                     all > here ? fmt::format("{} of {} are", here, all) : "one is");
}

}  // namespace

account::Evidence evidence_of(const JobTrace& job, const Recognition& found, const Explanation& explained) {
  account::Evidence evidence;
  double forward = 0, backward = 0;
  for (const ExplainedCollective& one : explained.collectives) {
    (one.phase == "forward" ? forward : backward) += one.causes_ms[Cause::late_prefetch];
  }
  if (backward > forward) evidence.late_phase = "backward";
  // A program that XLA compiled is none of PyTorch's.
  evidence.pytorch = found.engine != &dialects::maxtext_words();
  if (found.engine != nullptr && found.engine->remedies) {
    const dialects::Remedies& words = *found.engine->remedies;
    evidence.settings[Cause::late_prefetch] = backward > forward ? words.prefetch_backward : words.prefetch_forward;
    evidence.settings[Cause::all_gather_limit] = words.no_limit;
    evidence.settings[Cause::communicator_serialisation] = words.separate_reductions;
    evidence.settings[Cause::step_boundary] = words.accumulate;
  }
  if (evidence.pytorch) {
    evidence.settings[Cause::data_loading] = "DataLoader(num_workers=…, pin_memory=True, prefetch_factor=…)";
  }
  evidence.absent = absent_ranks(job, explained);
  evidence.shards = found.shards;
  evidence.data_parallel = found.kind == JobKind::data_parallel;
  evidence.experts = found.kind == JobKind::experts;
  evidence.late_launches_pct = explained.late_launches_pct;
  if (!found.syncs.empty()) evidence.sync_at = found.syncs.front().where;
  if (explained.exchanges) {
    evidence.imbalance = explained.exchanges->imbalance;
    evidence.busiest_rank = explained.exchanges->busiest_rank;
    evidence.two_halves = explained.exchanges->two_halves.value_or(false);
  }
  if (found.facts.param_dtype == DType::f32) {
    evidence.smaller_messages = "; parameters in bf16 are half the bytes";
  } else if (found.facts.reduce_dtype == DType::f32 && found.facts.param_dtype == DType::bf16) {
    evidence.smaller_messages = "; gradients reduced in bf16 are half the bytes";
  }
  if (found.facts.replicate == 1 && found.facts.shard > 8) {
    evidence.smaller_messages += "; hybrid sharding stays within nodes";
  }
  return evidence;
}

std::string late_rank_sentence(const LateRank& late, const JobTrace& job, const Explanation& explained) {
  static constexpr EnumNames<OwnPart> kLookAt{
      "The same kernels take longer there, or it has more of them: look at its GPU's clocks and at what it is given.",
      "Its device has nothing to do meanwhile: look at what its process does there, and at what else its host runs.",
      "It waits for its data: look at its loader and its storage.",
      "Its transfers take longer once all have come: look at its link."};
  const double percent = explained.mean_step_ms > 0 ? 100 * late.late_ms.median / explained.mean_step_ms : 0;
  const int rank = job.ranks[static_cast<std::size_t>(late.place)].rank;
  constexpr double kMoreWork = 1.02;
  const std::string look =
      late.where == OwnPart::kernels && late.work >= kMoreWork
          ? fmt::format(
                "It is given more: its matrix products have {:.2f} times the FLOP of the others', as with "
                "sequences of unequal lengths. That is no slow GPU.",
                late.work)
          : std::string(kLookAt[late.where]);
  const int n = late.late_ms.n;
  if (!late.certain()) {
    return fmt::format("In {} rank {} took {:.3f} ms{}{} more than the others, {:.1f} %: {}. {}",
                       n == 1   ? "this one step"
                       : n == 2 ? "these two steps"
                                : fmt::format("these {} steps", n),
                       rank, late.late_ms.median,
                       n > 1 ? fmt::format(" ({:.3f} to {:.3f})", late.late_ms.min, late.late_ms.max) : "",
                       n > 1 ? " a step" : "", percent, to_string(late.where), look);
  }
  return fmt::format("Rank {} is late by {:.3f} ms a step [{:.3f} to {:.3f}], {:.1f} % of it: {}. {}", rank,
                     late.late_ms.median, late.late_ms.ci_low, late.late_ms.ci_high, percent, to_string(late.where),
                     look);
}

}  // namespace fsdpbench::foreign
