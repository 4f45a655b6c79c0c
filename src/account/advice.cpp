#include "account/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "record/table.h"

namespace fsdpbench::account {
namespace {

constexpr double kLeastSharePct = 1;  // of a cause that was not replayed

/// Follows the advice for link_bound if the links of single ranks are not known.
constexpr const char* kSlowLinkUnseen =
    " One slow link would look the same: on real links a collective ends on all its ranks at once.";

/// "5.30 ms less a step [5.10 to 5.44]"
std::string gain_text(const Counterfactual& c) {
  const app::Shown time("ms", std::max(c.gain_ms, c.ci_high));
  return time.text(c.gain_ms) + " less a step" +
         (c.interval == IntervalKind::one_value ? "" : fmt::format(" [{}]", time.range(c.ci_low, c.ci_high)));
}

/// "5.30 ms less a step [5.10 to 5.44], 2.00 MiB more memory."
std::string brought_by(const Counterfactual& knob) {
  std::string text = gain_text(knob);
  if (knob.more_bytes && *knob.more_bytes != 0) {
    text += fmt::format(", {} {} memory", app::shown(std::abs(static_cast<double>(*knob.more_bytes)), "B"),
                        *knob.more_bytes > 0 ? "more" : "less");
  } else if (knob.more_bytes) {
    text += ", no more memory";
  }
  return text + ".";
}

/// Step time without the cause, and what can be done.
std::string without_sentence(const CauseShare& share, const std::string& settings) {
  std::string what(kCauses[share.cause].without);
  if (share.cause == Cause::straggler) what = fmt::format("the lateness of rank {}", share.late_rank);
  if (share.cause == Cause::slow_link) what = fmt::format("the slowness of rank {}'s link", share.late_rank);
  return fmt::format("without {} the step would take {}, {}: {}.", what, app::shown(share.without->step_ms, "ms"),
                     gain_text(*share.without), advice_with(share.cause, settings));
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
    if (share.share_pct < kLeastSharePct || (!unseen && !e.seen[cause])) return {};
    const std::string what =
        unseen ? e.absent
               : fmt::format("{}: {}{}", kCauses[cause].meaning, advice_with(cause, e.settings[cause]), *e.seen[cause]);
    return fmt::format("at most {}: {}.", app::shown(share.ms, "ms"), what);
  }
  // With few steps no rank is the late one for certain.
  if (!share.without->advised || (cause == Cause::straggler && share.late_rank < 0)) return {};
  // If no knob turns to the flat layout, it is in use already or the program cannot have it.
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
  return fmt::format("{}{}: {}", words.empty() ? "set " + knob.set : fmt::format("{} ({})", words, knob.set),
                     knob.set.find("_dtype=") == knob.set.npos ? "" : ", which changes numerics", brought_by(knob));
}

}  // namespace fsdpbench::account
