#include "account/advice.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

namespace fsdpbench::account {
namespace {

constexpr double kLeastSharePct = 1;  // of a cause that was not replayed

/// Follows the advice for link_bound if the links of single ranks are not known.
constexpr const char* kSlowLinkUnseen =
    " One slow link would look the same: on real links a collective ends on all its ranks at once.";

/// "5.30 ms less a step [5.10 to 5.44]"
std::string gain_text(const Counterfactual& c) {
  std::string text = fmt::format("{:.2f} ms less a step", c.gain_ms);
  if (c.interval != IntervalKind::one_value) text += fmt::format(" [{:.2f} to {:.2f}]", c.ci_low, c.ci_high);
  return text;
}

/// "5.30 ms less a step [5.10 to 5.44], 2.00 MiB more memory."
std::string brought_by(const Counterfactual& knob) {
  std::string text = gain_text(knob);
  if (knob.more_bytes && *knob.more_bytes != 0) {
    const double mib = static_cast<double>(*knob.more_bytes) / (1 << 20);
    text += fmt::format(", {:.2f} MiB {} memory", std::abs(mib), mib > 0 ? "more" : "less");
  } else if (knob.more_bytes) {
    text += ", no more memory";
  }
  return text + ".";
}

/// What the step would take without the cause, and what can be done.
std::string without_sentence(const CauseShare& share, const std::string& settings) {
  std::string what(kCauses[share.cause].without);
  if (share.cause == Cause::straggler) what = fmt::format("the lateness of rank {}", share.late_rank);
  if (share.cause == Cause::slow_link) what = fmt::format("the slowness of rank {}'s link", share.late_rank);
  return fmt::format("without {} the step would take {:.2f} ms, {}: {}.", what, share.without->step_ms,
                     gain_text(*share.without), advice_with(share.cause, settings));
}

/// What the rows of a job show about a cause that was not replayed, without full stop.
std::string seen_sentence(const CauseShare& share, const Evidence& e) {
  const std::string help = advice_with(share.cause, e.settings[share.cause]);
  const std::string by = fmt::format("{}: {}", kCauses[share.cause].meaning, help);
  switch (share.cause) {
    case Cause::straggler:
      if (share.late_rank < 0) return "collectives wait for now one rank, now another: uneven work, or jitter of hosts";
      return fmt::format("rank {} comes last to most of what others wait for: look at that rank, its GPU and its host",
                         share.late_rank);
    case Cause::host_bound:
      return fmt::format(
          "the host launches later than the device could begin ({:.0f} % of computation begins right after its "
          "launch): {}more work a launch (batch)",
          e.late_launches_pct, e.pytorch ? "torch.compile, CUDA graphs, or " : "");
    case Cause::host_sync:
      return fmt::format(
          "the host waits for the device within the step{}{}{}",
          e.pytorch ? " (.item(), .cpu(), print of a tensor)" : "", e.sync_at.empty() ? "" : ": first in " + e.sync_at,
          e.experts ? "; where it reads how many tokens come, counts that stay on the device or a fixed capacity "
                      "spare it"
                    : "");
    case Cause::slow_transfer:
    case Cause::data_loading: return by;
    case Cause::unknown: return {};
    case Cause::link_bound:
    case Cause::step_boundary:
      if (!e.data_parallel) break;
      return "all-reduces of gradients outlast backward: larger batches, or reduce less often" +
             std::string(e.pytorch ? " (no_sync() for all but the last microbatch; bucket_cap_mb)" : "");
    case Cause::expert_imbalance:
      if (!e.imbalance) break;
      return by + fmt::format(" (in the median exchange the busiest rank{} has {:.2f} times the mean)",
                              e.busiest_rank >= 0 ? fmt::format(", most often {},", e.busiest_rank) : "", *e.imbalance);
    default: break;
  }
  if (share.cause == Cause::expert_exchange || share.cause == Cause::expert_imbalance) {
    return by +
           (e.two_halves ? "" : "; shared experts, or a second half of the batch that computes meanwhile, hide them");
  }
  if (!e.shards) return {};
  if (share.cause == Cause::link_bound) return by + e.smaller_messages;
  if (share.cause == Cause::copy) return "copies between layouts stand alone: nothing computes beside them";
  if (share.cause != Cause::late_prefetch) return by;
  return fmt::format("gathers of {} are issued later than they could be: {}; costs the parameters of one more unit",
                     e.late_phase, help);
}

std::string advice(const CauseShare& share, const Evidence& e) {
  const Cause cause = share.cause;
  if (const ReplayedKnob* knob = best_knob(e.knobs, cause)) return knob_sentence(knob->gain, knob->words);
  // Nobody knows how the program says it, but one setting lifts such a cause.
  const auto unnamed = std::ranges::find_if(
      e.knobs, [&](const auto& k) { return k.gain.advised && k.gain.cause == cause && k.words.empty(); });
  if (unnamed != e.knobs.end() && kCauses[cause].liftable) {
    return fmt::format("{}: {}", advice_with(cause, ""), brought_by(unnamed->gain));
  }
  const bool of_link =
      cause == Cause::link_bound || cause == Cause::slow_transfer || cause == Cause::inefficient_collective;
  const bool unseen = of_link && !e.absent.empty();
  if (!share.without || unseen) {
    const std::string what = share.share_pct < kLeastSharePct ? "" : unseen ? e.absent : seen_sentence(share, e);
    return what.empty() ? "" : fmt::format("at most {:.3f} ms: {}.", share.ms, what);
  }
  if (!share.without->advised) return {};
  // Where no knob turns to the flat layout, it is there already, or the program cannot have it.
  const bool flat =
      std::ranges::any_of(e.knobs, [](const auto& k) { return k.sayable && k.gain.cause == Cause::copy; });
  if (cause == Cause::copy && !flat) return {};
  return without_sentence(share, e.settings[cause]);
}

}  // namespace

void advise(std::vector<CauseShare>& causes, const Evidence& evidence) {
  for (CauseShare& share : causes) {
    share.advice = advice(share, evidence);
    const bool may_be_one = share.cause == Cause::link_bound && !evidence.links_known;
    if (may_be_one && !share.advice.empty()) share.advice += kSlowLinkUnseen;
  }
}

const ReplayedKnob* best_knob(const std::vector<ReplayedKnob>& knobs, std::optional<Cause> against) {
  const auto found = std::ranges::find_if(knobs, [&](const ReplayedKnob& knob) {
    return knob.advised() && knob.gain.cause == against.value_or(knob.gain.cause);
  });
  return found == knobs.end() ? nullptr : &*found;
}

std::string knob_sentence(const Counterfactual& knob, const std::string& words) {
  return fmt::format("{}: {}", words.empty() ? "set " + knob.set : fmt::format("{} ({})", words, knob.set),
                     brought_by(knob));
}

}  // namespace fsdpbench::account
