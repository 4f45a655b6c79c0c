#include "foreign/remedies.h"

#include <fmt/format.h>

#include <algorithm>

#include "dialects/words/words.h"

namespace fsdpbench::foreign {
namespace {

/// How the program's settings are said; in this program's keys where its engine is not known.
dialects::Remedies words_for(const dialects::Words* engine) {
  const bool has = engine != nullptr && engine->remedies;
  return *(has ? *engine : dialects::fsdpbench_words()).remedies;
}

/// Where most of the exposed time of `why` is.
std::string worst_phase(const Explanation& explained, Why why) {
  double forward = 0, backward = 0;
  for (const ExplainedCollective& one : explained.collectives) {
    (one.phase == "forward" ? forward : backward) += one.causes_ms[static_cast<std::size_t>(why)];
  }
  return forward >= backward ? "forward" : "backward";
}

Remedy sharded(Why why, double ms, const Recognition& found, const Explanation& explained) {
  const dialects::Remedies words = words_for(found.engine);
  switch (why) {
    case Why::late_issue: {
      const std::string phase = worst_phase(explained, why);
      return {why, ms,
              fmt::format("gathers of {} are launched only when they are needed: let them be prefetched", phase),
              std::string(phase == "forward" ? words.prefetch_forward : words.prefetch_backward),
              "the parameters of one more unit"};
    }
    case Why::all_gather_limit:
      return {why, ms, "the host waits for an earlier unit to be freed before it gathers the next",
              std::string(words.no_limit), "the parameters of more units at once"};
    case Why::communicator_serialisation:
      return {why, ms, "gathers stand behind reductions on one communicator: give reductions their own",
              std::string(words.separate_reductions), "the communicator's buffers"};
    case Why::step_boundary:
      return {
          why, ms,
          "the first gathers and the last reductions have nothing beside them: more work a step makes them a smaller "
          "share",
          std::string(words.accumulate), ""};
    case Why::link_bound: {
      std::string how = "transfers take longer than the computation beside them: more computation a step";
      if (found.facts.reduce_dtype == DType::f32 && found.facts.param_dtype == DType::bf16) {
        how += ", or gradients reduced in bf16 (half the bytes)";
      } else if (found.facts.param_dtype == DType::f32) {
        how += ", or parameters in bf16 (half the bytes)";
      }
      if (found.facts.replicate == 1 && found.facts.shard > 8) how += ", or hybrid sharding within nodes";
      return {why, ms, how, "", ""};
    }
    case Why::copy: return {why, ms, "copies between layouts stand alone: nothing computes beside them", "", ""};
    default: return {why, 0, "", "", ""};
  }
}

}  // namespace

std::string remedy_sentence(const Remedy& remedy) {
  std::string text = remedy.advice;
  if (!remedy.setting.empty()) text += fmt::format(". Setting: {}", remedy.setting);
  if (!remedy.cost.empty()) text += fmt::format("; costs {}", remedy.cost);
  return text + ".";
}

std::vector<Remedy> find_remedies(const JobTrace& job, const Recognition& found, const Explanation& explained) {
  std::vector<Remedy> remedies;
  for (std::size_t w = 0; w < kWhyCount; ++w) {
    const auto why = static_cast<Why>(w);
    const double ms = explained.causes_ms[w];
    if (ms <= 0 || ms * 100 < kLeastSharePct * explained.mean_step_ms) continue;
    Remedy remedy{why, ms, "", "", ""};
    switch (why) {
      case Why::straggler:
        remedy.advice =
            explained.late_rank
                ? fmt::format(
                      "rank {} comes last to most of what others wait for: look at that rank, its GPU and its host",
                      job.ranks[static_cast<std::size_t>(*explained.late_rank)].rank)
                : "collectives wait for now one rank, now another: uneven work, or jitter of hosts";
        break;
      case Why::slow_transfer:
        remedy.advice =
            "some transfers take longer than others of their kind and size: look at links and at what else uses them";
        break;
      case Why::host_bound:
        remedy.advice = fmt::format(
            "the host launches later than the device could begin ({:.0f} % of computation begins right after its "
            "launch): "
            "torch.compile, CUDA graphs, or more work a launch (batch)",
            explained.late_launches_pct);
        break;
      case Why::host_sync: {
        remedy.advice = "the host waits for the device within the step (.item(), .cpu(), print of a tensor)";
        if (!found.syncs.empty()) remedy.advice += ": first in " + found.syncs.front().where;
        break;
      }
      case Why::data_loading:
        remedy.advice = "the device waits for a batch";
        remedy.setting = "DataLoader(num_workers=…, pin_memory=True, prefetch_factor=…)";
        break;
      case Why::unknown: continue;
      default:
        if (found.is_fsdp()) {
          remedy = sharded(why, ms, found, explained);
        } else if (found.kind == JobKind::data_parallel && (why == Why::link_bound || why == Why::step_boundary)) {
          remedy.advice = "all-reduces of gradients outlast backward: larger batches, or reduce less often";
          remedy.setting = "no_sync() for all but the last microbatch; bucket_cap_mb";
        } else {
          continue;
        }
        break;
    }
    if (!remedy.advice.empty()) remedies.push_back(std::move(remedy));
  }
  std::ranges::stable_sort(remedies, std::greater<>(), &Remedy::most_ms);
  return remedies;
}

}  // namespace fsdpbench::foreign
