#include "foreign/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/enum_table.h"
#include "config/words/words.h"
#include "foreign/xla_program.h"

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

/// How the program's settings are said.
EnumTable<Cause, std::string> settings_of(const JobTrace& job, const Recognition& found, bool forward) {
  EnumTable<Cause, std::string> settings;
  const bool own = found.table.source == UnitSource::own_names;
  const dialects::Words* const engine = own ? &dialects::words_of("fsdpbench") : found.engine;
  if (own) {
    for (const Cause cause : kEnumerators<Cause>) settings[cause] = account::kCauses[cause].settings;
  } else if (!job.ranks.front().is_compiled()) {  // XLA's are none of PyTorch's
    settings[Cause::data_loading] = "DataLoader(num_workers=…, pin_memory=True, prefetch_factor=…)";
    settings[Cause::host_bound] =
        fmt::format("{}torch.compile, CUDA graphs, a larger batch", found.shards ? "larger units, " : "");
    settings[Cause::host_sync] = found.kind == JobKind::experts
                                     ? ".item(), .cpu(), or the host reads how many tokens come: keep counts on the "
                                       "device, or give experts a fixed capacity"
                                     : ".item(), .cpu(), print of a tensor";
    if (found.kind == JobKind::data_parallel) {
      settings[Cause::link_bound] = settings[Cause::step_boundary] =
          "larger batches, no_sync() for all but the last microbatch; bucket_cap_mb";
    }
  }
  if (engine == nullptr || !engine->remedies || !found.shards) return settings;
  const dialects::Remedies& words = *engine->remedies;
  const std::optional<XlaFacts>& xla = job.ranks.front().xla;  // whose flag was renamed
  settings[Cause::late_prefetch] =
      (xla ? gathers_ahead(xla->since_0_11_1) : "") + (forward ? words.prefetch_forward : words.prefetch_backward);
  settings[Cause::all_gather_limit] = words.no_limit;
  settings[Cause::reduce_scatter_buffers] = words.more_buffers;
  settings[Cause::communicator_serialisation] = words.separate_reductions;
  settings[Cause::contention] = words.one_communicator;
  settings[Cause::step_boundary] = settings[Cause::host_update] = words.accumulate;
  return settings;
}

/// Evidence of a cause in the rows, to follow what the table of causes says; absent: not enough to advise anything.
std::optional<std::string> seen_of(const account::CauseShare& share, const Recognition& found,
                                   const Explanation& explained, bool forward, const std::string& setting) {
  const bool exchanged = share.cause == Cause::link_bound || share.cause == Cause::step_boundary;
  switch (share.cause) {
    case Cause::straggler:
      if (share.late_rank < 0) return std::nullopt;
      return fmt::format(" (rank {} comes last to most of what others wait for)", share.late_rank);
    case Cause::host_bound:
      if (explained.garbage_ms > 0) {
        return fmt::format(" (for {:.3f} ms Python collected garbage: gc.freeze(), gc.disable())",
                           explained.garbage_ms);
      }
      return fmt::format(" ({:.0f} % of computation begins right after its launch)", explained.late_launches_pct);
    case Cause::host_sync: return found.syncs.empty() ? "" : fmt::format(" (first in {})", found.syncs.front().where);
    case Cause::slow_transfer:
    case Cause::data_loading:
    case Cause::expert_imbalance: return "";
    case Cause::copy:
    case Cause::unknown: return std::nullopt;
    case Cause::expert_exchange:
      return "; shared experts, or a second half of the batch that computes meanwhile, hide them";
    default: break;
  }
  if (!found.shards && (!exchanged || found.kind != JobKind::data_parallel)) return std::nullopt;
  constexpr Cause kBySetting[]{Cause::late_prefetch, Cause::all_gather_limit, Cause::reduce_scatter_buffers,
                               Cause::communicator_serialisation, Cause::contention};
  const bool words_known = found.engine != nullptr && found.engine->remedies;
  if (words_known && setting.empty() && std::ranges::find(kBySetting, share.cause) != std::end(kBySetting))
    return std::nullopt;
  if (share.cause == Cause::late_prefetch)
    return fmt::format("; most of it is in {}", forward ? "forward" : "backward");
  if (share.cause != Cause::link_bound) return "";
  std::string how;
  if (found.facts.param_dtype == DType::f32) {
    how = "; parameters in bf16 are half the bytes, which changes numerics";
  } else if (found.facts.reduce_dtype == DType::f32 && found.facts.param_dtype == DType::bf16) {
    how = "; gradients reduced in bf16 are half the bytes, which changes numerics";
  }
  return how + (found.facts.replicate == 1 && found.facts.shard > 8 ? "; hybrid sharding stays within nodes" : "");
}

}  // namespace

account::Evidence evidence_of(const JobTrace& job, const Recognition& found, const Explanation& explained) {
  double late_ms = 0;  // of gathers, more in forward than in backward
  for (const ExplainedCollective& one : explained.collectives) {
    late_ms += one.causes_ms[Cause::late_prefetch] * (one.phase == "forward" ? 1 : -1);
  }
  account::Evidence evidence{.settings = settings_of(job, found, late_ms >= 0), .absent = absent_ranks(job, explained)};
  for (const account::CauseShare& share : explained.causes) {
    evidence.seen[share.cause] = seen_of(share, found, explained, late_ms >= 0, evidence.settings[share.cause]);
  }
  return evidence;
}

std::string late_rank_sentence(const LateRank& late, const JobTrace& job, const Explanation& explained) {
  static constexpr EnumNames<OwnPart> kLookAt{
      "The same kernels take longer there, or it has more of them: look at its GPU's clocks and at what it is given.",
      "Its device has nothing to do meanwhile: look at what its process does there, and at what else its host runs.",
      "Its process stands still meanwhile: gc.freeze(), or gc.collect() in the same steps on all ranks.",
      "It waits for its data: look at its loader and its storage.",
      "Its transfers take longer once all have come: look at its link."};
  const double percent = explained.mean_step_ms > 0 ? 100 * late.late_ms.median / explained.mean_step_ms : 0;
  const int rank = job.ranks[late.place].rank;
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
