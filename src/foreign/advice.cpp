#include "foreign/advice.h"

#include <fmt/format.h>

#include <string_view>

#include "account/counterfactual.h"
#include "base/dtype.h"
#include "base/enum_table.h"
#include "config/words/words.h"

namespace fsdpbench::foreign {
namespace {

using account::Cause;

/// How the program's settings are said; in this program's keys where its engine is not known.
const dialects::Remedies& words_for(const dialects::Words* engine) {
  const bool has = engine != nullptr && engine->remedies;
  return *(has ? *engine : dialects::words_of("fsdpbench")).remedies;
}

/// Where most of the exposed time of a cause is.
std::string_view worst_phase(Cause cause, const Explanation& explained) {
  double forward = 0, backward = 0;
  for (const ExplainedCollective& one : explained.collectives) {
    (one.phase == "forward" ? forward : backward) += one.causes_ms[cause];
  }
  return forward >= backward ? "forward" : "backward";
}

/// What only some jobs can do beside what the table of causes says.
std::string more_against_transfers(const Recognition& found) {
  std::string how;
  if (found.facts.reduce_dtype == DType::f32 && found.facts.param_dtype == DType::bf16) {
    how += "; gradients reduced in bf16 are half the bytes";
  } else if (found.facts.param_dtype == DType::f32) {
    how += "; parameters in bf16 are half the bytes";
  }
  if (found.facts.replicate == 1 && found.facts.shard > 8) how += "; hybrid sharding stays within nodes";
  return how;
}

/// A sentence without its full stop; empty: nothing helps that is known.
std::string sentence(const account::CauseShare& share, const Recognition& found, const Explanation& explained) {
  const std::string by =
      fmt::format("{}: {}", account::kCauses[share.cause].meaning,
                  account::advice_with(share.cause, settings_against(share.cause, found, explained)));
  const bool exchanges = share.cause == Cause::link_bound || share.cause == Cause::step_boundary;
  switch (share.cause) {
    case Cause::straggler:
      return share.late_rank >= 0
                 ? fmt::format(
                       "rank {} comes last to most of what others wait for: look at that rank, its GPU and its host",
                       share.late_rank)
                 : "collectives wait for now one rank, now another: uneven work, or jitter of hosts";
    case Cause::host_bound:
      return fmt::format(
          "the host launches later than the device could begin ({:.0f} % of computation begins right "
          "after its launch): torch.compile, CUDA graphs, or more work a launch (batch)",
          explained.late_launches_pct);
    case Cause::host_sync:
      return "the host waits for the device within the step (.item(), .cpu(), print of a tensor)" +
             (found.syncs.empty() ? "" : ": first in " + found.syncs.front().where) +
             (found.kind == JobKind::experts
                  ? "; where it reads how many tokens come, counts that stay on the device or a fixed capacity spare it"
                  : "");
    case Cause::slow_transfer:
    case Cause::data_loading: return by;
    case Cause::unknown: return {};
    default: break;
  }
  if (found.kind == JobKind::data_parallel && exchanges) {
    return "all-reduces of gradients outlast backward: larger batches, or reduce less often (no_sync() for all but the "
           "last microbatch; bucket_cap_mb)";
  }
  if (share.cause == Cause::expert_exchange || share.cause == Cause::expert_imbalance) {
    const bool halves = explained.exchanges && explained.exchanges->two_halves.value_or(false);
    if (share.cause == Cause::expert_imbalance && explained.exchanges && explained.exchanges->imbalance) {
      const Exchanges& x = *explained.exchanges;
      return by + fmt::format(" (in the median exchange the busiest rank{} has {:.2f} times the mean)",
                              x.busiest_rank >= 0 ? fmt::format(", most often {},", x.busiest_rank) : "", *x.imbalance);
    }
    return by + (halves ? "" : "; shared experts, or a second half of the batch that computes meanwhile, hide them");
  }
  if (!found.shards) return {};
  switch (share.cause) {
    case Cause::late_prefetch:
      return fmt::format("gathers of {} are issued later than they could be: {}; costs the parameters of one more unit",
                         worst_phase(share.cause, explained),
                         account::advice_with(share.cause, settings_against(share.cause, found, explained)));
    case Cause::link_bound: return by + more_against_transfers(found);
    case Cause::copy: return "copies between layouts stand alone: nothing computes beside them";
    default: return by;
  }
}

/// Why nothing can be said of links; empty: the files of all ranks are here.
std::string absent_ranks(const JobTrace& job, const Explanation& explained) {
  const int here = static_cast<int>(job.ranks.size()), all = job.ranks.front().world_size.value_or(0);
  if (here > 1 && here >= all) return {};
  if (here == 1 && all <= 1 && explained.communication_ms <= 0) return {};
  return fmt::format("the link, or a rank whose file is not here ({}): give the files of all ranks",
                     all > here ? fmt::format("{} of {} are", here, all) : "one is");
}

}  // namespace

std::string settings_against(Cause cause, const Recognition& found, const Explanation& explained) {
  const dialects::Remedies& words = words_for(found.engine);
  switch (cause) {
    case Cause::late_prefetch:
      return std::string(worst_phase(cause, explained) == "forward" ? words.prefetch_forward : words.prefetch_backward);
    case Cause::all_gather_limit: return std::string(words.no_limit);
    case Cause::communicator_serialisation: return std::string(words.separate_reductions);
    case Cause::step_boundary: return std::string(words.accumulate);
    case Cause::data_loading: return "DataLoader(num_workers=…, pin_memory=True, prefetch_factor=…)";
    default: return {};
  }
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

void advise(const JobTrace& job, const Recognition& found, Explanation& explained) {
  const std::string absent = absent_ranks(job, explained);
  for (account::CauseShare& share : explained.causes) {
    if (share.share_pct < kLeastSharePct) continue;
    const bool of_link = share.cause == Cause::link_bound || share.cause == Cause::slow_transfer ||
                         share.cause == Cause::inefficient_collective;
    share.advice = of_link && !absent.empty() ? absent : sentence(share, found, explained);
    if (!share.advice.empty()) share.advice = fmt::format("at most {:.3f} ms: {}.", share.ms, share.advice);
  }
}

}  // namespace fsdpbench::foreign
