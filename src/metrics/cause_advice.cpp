#include "metrics/cause_advice.h"

#include <fmt/format.h>

namespace fsdpbench::metrics {

std::string advice(const CauseShare& share, const schedule::Policy& policy, double stalled_ms) {
  using PrefetchMode = config::Prefetch::Mode;
  using LimitMode = config::AllGatherLimit::Mode;
  const std::string of = fmt::format("{:.2f} ms of {:.2f} ms without computation", share.ms, stalled_ms);
  const config::Fsdp& fsdp = policy.fsdp;
  switch (share.cause) {
    case Cause::step_boundary:
      return fmt::format(
          "{} lie at the ends of the step, where nothing is there to hide a transfer behind: more work a "
          "step (train.accumulate, train.batch_per_rank) makes them a smaller share.",
          of);
    case Cause::link_bound:
      return fmt::format(
          "{} are the link's own: make computation longer (train.batch_per_rank), messages smaller "
          "(fsdp.param_dtype or fsdp.reduce_dtype = \"bf16\", fsdp.strategy = \"shard_grad_op\" or "
          "\"hybrid_shard\"), or the link faster.",
          of);
    case Cause::inefficient_collective:
      return fmt::format("{} are mostly latency: fewer, larger messages would help (fsdp.wrap = \"blocks:2\" or more).",
                         of);
    case Cause::late_prefetch: {
      const bool forward = fsdp.forward_prefetch.mode == PrefetchMode::none;
      const bool backward = fsdp.backward_prefetch.mode == PrefetchMode::none;
      const char* what = forward && backward
                             ? "fsdp.forward_prefetch and fsdp.backward_prefetch are \"none\": {} would "
                               "hide with \"implicit\" and \"pre\"."
                         : forward  ? "fsdp.forward_prefetch is \"none\": {} would hide with \"implicit\"."
                         : backward ? "fsdp.backward_prefetch is \"none\": {} would hide with \"pre\"."
                                    : "gathers are issued too late: {} would hide if a prefetch were allowed; see "
                                      "fsdp.all_gather_limit and fsdp.backward_prefetch.";
      return fmt::format(fmt::runtime(what), of);
    }
    case Cause::all_gather_limit:
      switch (fsdp.all_gather_limit.mode) {
        case LimitMode::strict:
        case LimitMode::buffers:
        case LimitMode::fetched:
        case LimitMode::fsdp1_queue:
          return fmt::format(
              "fsdp.all_gather_limit allows {} gathers: {} would hide with one more, for one more unit of memory.",
              fsdp.all_gather_limit.count, of);
        case LimitMode::bytes:
          return fmt::format("fsdp.all_gather_limit rations bytes: {} would hide with room for one more unit.", of);
        default:
          return fmt::format(
              "fsdp.all_gather_limit holds gathers back until buffers are copied out: {} would hide with a "
              "prefetch depth above 1 or layout \"flat\".",
              of);
      }
    case Cause::reduce_scatter_buffers:
      return fmt::format(
          "fsdp.reduce_scatter_buffers is {}: {} are spent waiting for a buffer; another one lets "
          "computation go on.",
          fsdp.reduce_scatter_buffers, of);
    case Cause::communicator_serialisation:
      return fmt::format(
          "{} are spent behind another collective on the same communicator: "
          "fsdp.separate_reduce_scatter_comm = true lets them run together.",
          of);
    case Cause::contention:
      return fmt::format(
          "{} come from two transfers sharing one link: fsdp.separate_reduce_scatter_comm = false lets the "
          "more urgent one go first.",
          of);
    case Cause::straggler:
      return fmt::format("{} are spent waiting for rank {}, which comes last: look at that rank.", of, share.late_rank);
    case Cause::injected_sync:
      return fmt::format("{} follow a host that waited for the device (inject.host_sync_after_layer): find the sync.",
                         of);
    case Cause::host_bound:
      return fmt::format("{} are lost because the host issued ops late: larger units (fsdp.wrap) or a faster host.",
                         of);
    case Cause::copy:
      return fmt::format("{} are copies in or out of communication buffers: fsdp.layout = \"flat\" needs none.", of);
    case Cause::unknown:
      return fmt::format("{} could not be put down to anything; waking up threads on busy cores is the usual suspect.",
                         of);
  }
  return {};
}

}  // namespace fsdpbench::metrics
