#include "account/cause_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdpbench::account {
namespace {

/// "5.30 ms less a step [5.10 to 5.44]"
std::string gain_text(const Counterfactual& c) {
  std::string text = fmt::format("{:.2f} ms less a step", c.gain_ms);
  if (c.interval != IntervalKind::one_value) text += fmt::format(" [{:.2f} to {:.2f}]", c.ci_low, c.ci_high);
  return text;
}

}  // namespace

std::string knob_sentence(const Counterfactual& knob, const std::string& words) {
  const std::string what = words.empty() ? "set " + knob.set : fmt::format("{} ({})", words, knob.set);
  std::string text = fmt::format("{}: {}", what, gain_text(knob));
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
  // Where no knob turns to the flat layout, it is there already, or the plan cannot have it.
  if (share.cause == Cause::copy && std::ranges::find(knobs, Cause::copy, &Counterfactual::cause) == knobs.end()) return {};
  return without_sentence(share, std::string(kCauses[share.cause].settings));
}

std::string without_sentence(const CauseShare& share, const std::string& settings) {
  std::string what(kCauses[share.cause].without);
  if (share.cause == Cause::straggler) what = fmt::format("the lateness of rank {}", share.late_rank);
  if (share.cause == Cause::slow_link) what = fmt::format("the slowness of rank {}'s link", share.late_rank);
  return fmt::format("without {} the step would take {:.2f} ms, {}: {}.", what, share.without->step_ms,
                     gain_text(*share.without), advice_with(share.cause, settings));
}

}  // namespace fsdpbench::account
