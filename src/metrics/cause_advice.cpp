#include "metrics/cause_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdpbench::metrics {
namespace {

/// "5.30 ms less a step [5.10 to 5.44]"
std::string gain_text(const Counterfactual& c) {
  std::string text = fmt::format("{:.2f} ms less a step", c.gain_ms);
  if (c.interval != IntervalKind::one_value) text += fmt::format(" [{:.2f} to {:.2f}]", c.ci_low, c.ci_high);
  return text;
}

/// What a cause is without which the step would be shorter, and what can be done about it beside turning a knob.
struct Remedy {
  const char* without;
  const char* by;
};

Remedy remedy_of(Cause cause) {
  switch (cause) {
    case Cause::step_boundary:
      return {"transfers at the start and end of the step, which no computation can hide,",
              "more work a step (train.accumulate, train.batch_per_rank) makes them a smaller share"};
    case Cause::link_bound:
      return {"the time that bytes take on the link",
              "longer computation (train.batch_per_rank), smaller messages or a faster link hide it"};
    case Cause::inefficient_collective:
      return {"the latency of the link", "fewer, larger messages (fsdp.wrap) pay it less often"};
    case Cause::late_prefetch: return {"gathers issued late", "let them be prefetched"};
    case Cause::all_gather_limit: return {"fsdp.all_gather_limit", "a higher limit costs memory"};
    case Cause::reduce_scatter_buffers: return {"waits for reduce-scatter inputs", "more buffers cost memory"};
    case Cause::communicator_serialisation:
      return {"waits for collectives of another kind", "a communicator of their own lets them run together"};
    case Cause::contention: return {"transfers sharing their link", "one communicator lets the more urgent go first"};
    case Cause::straggler: return {"the lateness of its late rank", "look at that rank"};
    case Cause::injected_sync: return {"the host's waits for the device", "find the sync"};
    case Cause::host_bound: return {"the host's time to issue ops", "larger units (fsdp.wrap) or a faster host"};
    case Cause::copy: return {"copies in and out of communication buffers", "fsdp.layout=flat needs none"};
    case Cause::pcie:
      return {"copies between device and host memory (fsdp.cpu_offload)",
              "longer computation (train.batch_per_rank), microbatches without sync or state on the device hide or "
              "spare them"};
    case Cause::host_update:
      return {"the host's update of what lies in its memory (fsdp.cpu_offload)",
              "more work a step (train.accumulate) makes it a smaller share; on the device it is faster"};
    case Cause::slow_link: return {"the slowness of one rank's link", "look at that link"};
    case Cause::tensor_group:
      return {"the exchanges of ranks that split layers",
              "fewer of them (mesh.tensor), or all of them on one node, exchange less or faster"};
    case Cause::cores_busy:
      return {"waits for a core", "fewer ranks or threads on a machine, or more cores, let lanes begin at once"};
    case Cause::unknown: return {"the late starts of lanes", "waking up threads on busy cores is the usual suspect"};
  }
  return {"", ""};
}

}  // namespace

std::string knob_sentence(const Counterfactual& knob) {
  std::string text = fmt::format("set {}: {}", knob.set, gain_text(knob));
  if (knob.more_bytes && *knob.more_bytes != 0) {
    const double mib = static_cast<double>(*knob.more_bytes) / (1 << 20);
    text += fmt::format(", {:.2f} MiB {} memory", std::abs(mib), mib > 0 ? "more" : "less");
  } else if (knob.more_bytes) {
    text += ", no more memory";
  }
  return text + ".";
}

std::string advice(const CauseShare& share, const std::vector<Counterfactual>& knobs) {
  const auto knob =
      std::ranges::find_if(knobs, [&](const Counterfactual& k) { return k.advised && k.cause == share.cause; });
  if (knob != knobs.end()) return knob_sentence(*knob);
  if (!share.without || !share.without->advised) return {};
  const Remedy remedy = remedy_of(share.cause);
  if (share.cause == Cause::straggler) {
    return fmt::format("without the lateness of rank {} the step would take {:.2f} ms, {}: look at that rank.",
                       share.late_rank, share.without->step_ms, gain_text(*share.without));
  }
  if (share.cause == Cause::slow_link) {
    return fmt::format("without the slowness of rank {}'s link the step would take {:.2f} ms, {}: {}.", share.late_rank,
                       share.without->step_ms, gain_text(*share.without), remedy.by);
  }
  return fmt::format("without {} the step would take {:.2f} ms, {}: {}.", remedy.without, share.without->step_ms,
                     gain_text(*share.without), remedy.by);
}

}  // namespace fsdpbench::metrics
