#include "accept/stages/busy_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "accept/regression.h"
#include "hardware/other_work.h"

namespace fsdpbench::app {
namespace {

using accept::Finding;
using accept::Judgement;
using accept::Verdict;

/// How more time would change what a rule judges.
enum class Sense : std::uint8_t {
  rises,      ///< the figure may have been higher: it is a rate, or a share of one
  falls,      ///< it may have been lower: it is a time
  scatters,   ///< nothing certain can be said: it compares times among each other
};
struct TimedRule {
  std::string_view rule;
  Sense sense;
};
constexpr std::array kTimedRules{TimedRule{"floor", Sense::rises},     TimedRule{"scale", Sense::rises},
                                 TimedRule{"explained", Sense::rises}, TimedRule{"exposed communication", Sense::falls},
                                 TimedRule{"slow-down", Sense::falls}, TimedRule{"drift", Sense::falls},
                                 TimedRule{"latency", Sense::falls},   TimedRule{"tail", Sense::scatters},
                                 TimedRule{"shape", Sense::scatters}};

bool still_fails(const Judgement& j, Sense sense, double faster) {
  if (sense == Sense::scatters || !j.bound) return false;
  return sense == Sense::rises ? j.value.high * faster < *j.bound : j.value.low / faster > *j.bound;
}

}  // namespace

double host_may_be_faster(const AcceptanceMeasurements& measured) {
  constexpr double kMostShare = 0.99;
  if (measured.others_share < kQuietShare) return 1;
  return 1 / (1 - std::min(measured.others_share, kMostShare));
}

double may_be_faster(const AcceptanceMeasurements& measured) {
  if (!measured.on_processors || measured.others_share < kQuietShare) return 1;
  return accept::most_slowed(measured.others_share);
}

void soften(const AcceptanceMeasurements& measured, std::vector<Judgement>& judgements, std::vector<Finding>& findings) {
  const double faster = may_be_faster(measured), host_faster = host_may_be_faster(measured);
  if (host_faster <= 1) return;
  const std::string why = fmt::format("; {}, so it is not certain", taken_text(measured.others_share));
  for (Judgement& j : judgements) {
    const auto* const timed = std::ranges::find(kTimedRules, j.rule, &TimedRule::rule);
    if (j.verdict != Verdict::fail || timed == kTimedRules.end()) continue;
    const double by = j.on_host ? host_faster : faster;
    if (by <= 1 || still_fails(j, timed->sense, by)) continue;
    j.verdict = Verdict::inconclusive;
    j.sentence += why;
  }
  for (Finding& f : findings) {
    if (f.kind != Finding::Kind::slow && f.kind != Finding::Kind::half_duplex) continue;
    if (!f.on_cores || f.relative.high * faster < 1 - accept::kLeastShortfall) continue;
    f.kind = Finding::Kind::transient;
    f.evidence += why;
  }
}

}  // namespace fsdpbench::app
