#include "runs/cause_fields.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "account/advice.h"
#include "account/cause.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "base/enum_table.h"
#include "base/lane.h"
#include "record/json_part.h"

namespace fsdpbench::app {
namespace {

using account::Cause;
using account::CauseReport;
using account::CauseShare;
using account::Counterfactual;
using account::Lateness;
using account::LateRank;
using account::StepJitter;
using nlohmann::json;

}  // namespace

template <>
Fields<StepJitter> declared();
template <>
Fields<Lateness> declared();
template <>
Fields<LateRank> declared();
namespace {

/// A cause by its name.
struct CauseName : JsonType<Cause> {
  static void read(const JsonPart& j, Cause& into) {
    const std::optional<Cause> cause = account::cause_named(j.text());
    if (!cause) j.refuse("the name of a cause");
    into = *cause;
  }
};

/// Completes the part of a counterfactual that a share of a cause has, too.
void complete_counterfactual(CauseShare& share) {
  if (!share.without) return;
  share.without->cause = share.cause;
  share.without->late_rank = share.late_rank;
}

}  // namespace

// clang-format off
template <>
Fields<StepJitter> declared() {
  return {"Jitter", "Time of the median step beyond the typical one.", "account/cause_report.h", {
    {"ms", &StepJitter::ms, "ms", "the difference; negative where the median step was shorter"},
    {"share_pct", &StepJitter::share_pct, "%", "of the median step"},
    {"compute_ms", &StepJitter::computation_ms, "ms", "of it, in computation"},
    {"stalled_ms", &StepJitter::stalled_ms, "ms", "of it, while nothing computed: no cause has any of it"},
  }};
}

template <>
Fields<Lateness> declared() {
  return {"Lateness", "Comparison of a late rank with the others.", "account/late_ranks.h", {
    {"trials", &Lateness::trials, "", "how often ranks were compared"},
    {"late", &Lateness::late, "", "how often at least half of all ranks were faster"},
    {"by_chance", &Lateness::by_chance, "", "how likely that is if no rank differs"},
    {"excess_ms", &Lateness::excess_ms, "ms", "of a step, what it took beyond the median of the others"},
    then([](Lateness& lateness) { lateness.significant = true; }),
  }};
}

template <>
Fields<LateRank> declared() {
  return {"LateRank", "A rank that takes longer than the others for certain.", "account/typical_step.h", {
    {"rank", &LateRank::rank, "", "number of the rank"},
    {"work", &LateRank::work, "", "its own ops take longer"},
    {"issue", &LateRank::issue, "", "its host takes longer"},
    {"link", &LateRank::link, "", "its link takes longer"},
  }};
}

template <>
Fields<Counterfactual> declared() {
  using C = Counterfactual;
  return {"Counterfactual", "The typical step replayed without one thing, or with another value of one key.", "account/counterfactual.h", {
    {"step_ms", &C::step_ms, "ms", "what the step would take"},
    {"gain_ms", &C::gain_ms, "ms", "how much less that is than the typical step; negative: more"},
    {"ci_low", &C::ci_low, "ms", "lower end of the interval of the gain"},
    {"ci_high", &C::ci_high, "ms", "upper end of that interval"},
    {"interval", &C::interval, "", "what the two ends are, as in a summary"},
    {"advised", &C::advised, "", "the interval is above 0 and the gain above the noise"},
    {"more_bytes", as<SignedWhole>(&C::more_bytes), "B", "more peak memory that it takes"},
  }};
}

template <>
Fields<CauseShare> declared() {
  using C = CauseShare;
  return {"Cause", "Why computation was not running: a mean over all ranks in the typical step.", "account/counterfactual.h", {
    {"cause", as<CauseName>(&C::cause), "", "name of the cause ([explain.md](explain.md))"},
    {"ms", &C::ms, "ms", "time of a step that it takes"},
    {"share_pct", &C::share_pct, "%", "share of the step"},
    {"unit", &C::unit, "", "the unit that lost most to it", if_any},
    {"op", &C::op, "", "the op that was waited for there, as traces name it", if_any},
    {"late_rank", &C::late_rank, "", "rank that came last most of the time, or whose link is slow", if_known},
    {"advice", &C::advice, "", "a sentence that says what would help; empty if nothing is known for certain"},
    {"without", &C::without, "", "typical step without the cause"},
    then(complete_counterfactual),
  }};
}

namespace {

/// Another value of a key, and what it would bring.
const Fields<Counterfactual>& knob_fields() {
  using C = Counterfactual;
  static const Fields<Counterfactual> kAll{"Knob", "A key that could be turned and gains more than the noise.", "account/counterfactual.h", {
    {"set", &C::set, "", "the change, as `key=value`"},
    {"cause", as<CauseName>(&C::cause), "", "the cause that it is meant for"},
    spread(kItself),
    {"advice", [](const C& c) { return account::knob_sentence(c); }, "", "a sentence that says what the change gains; absent unless the change is advised", when(&C::advised)},
  }};
  return kAll;
}

}  // namespace

const Fields<CauseReport>& cause_fields() {
  using R = CauseReport;
  static const Fields<CauseReport> kAll{"Causes", "", "account/cause_report.h", {
    {"causes", &R::causes, "", "why computation was not running, the largest cause first. Together with `jitter.stalled_ms` they add up to the time without computation. Causes under 2 % of the step are only in `causes_small_ms`, unless removing them would gain that much"},
    {"causes_small_ms", &R::small_ms, "ms", "all causes that are not listed, together"},
    {"typical_ms", &R::typical_ms, "ms", "the typical step ([explain.md](explain.md)), of its slowest rank; where there is none, the median step"},
    {"no_typical_step_because", &R::no_typical_because, "", "why there is no typical step: what the recorded ranks lack, a sentence", if_any},
    {"jitter", &R::jitter, "", "what the median step took beyond the typical one; absent without a typical step"},
    {"late_ranks", &R::late_ranks, "", "ranks that are certain to take longer than the others ([explain.md](explain.md))"},
    {"knobs", as<ListOf<knob_fields>>(&R::knobs), "", "keys whose change would gain more than the noise, the largest gain first"},
  }};
  return kAll;
}

const Fields<CauseReport>& stall_fields() {
  static const Fields<CauseReport> kAll{"Stalls", "", "account/cause_report.h", {
    {"stalled_ms", &CauseReport::stalled_ms, "ms", "exposed communication + exposed copies + idle"},
  }};
  return kAll;
}
// clang-format on
namespace {

using account::PathKind;
using account::PathRank;
using account::PathSegment;
using nlohmann::json;

/// Share of one rank in the critical path: kinds that have any.
struct PathByKind {
  static json write(const EnumTable<PathKind, double>& times) {
    json j = json::object();
    for (const PathKind kind : kEnumerators<PathKind>) {
      if (times[kind] > 0) j[std::string(to_string(kind))] = times[kind];
    }
    return j;
  }
  static void read(const JsonPart& j, EnumTable<PathKind, double>& times) {
    for (const PathKind kind : kEnumerators<PathKind>) {
      if (j.has(to_string(kind))) times[kind] = j.at(to_string(kind)).number();
    }
  }
  static TypeFacts facts() { return {"map of number"}; }
};

}  // namespace

// clang-format off
template <>
Fields<PathRank> declared() {
  using P = PathRank;
  return {"PathRank", "Share of one rank in the critical path.", "account/critical_path.h", {
    {"rank", &P::rank, "", "number of the rank"},
    {"ms", &P::ms, "ms", "its part of the path, mean over steps"},
    {"share_pct", &P::share_pct, "%", "share of the path"},
    {"kinds_ms", as<PathByKind>(&P::kinds_ms), "ms", "`ms` by kind: `kernels`, `collectives`, `copies`, `host`, `waits` (for a rank whose records are missing, or for a processor core), `unknown`"},
  }};
}

template <>
Fields<PathSegment> declared() {
  using S = PathSegment;
  return {"PathSegment", "Neighbours on the critical path that are of one rank and kind.", "account/critical_path.h", {
    {"rank", &S::rank, "", "number of the rank"},
    {"kind", &S::kind, "", "as in `kinds_ms`"},
    {"begin_us", &S::begin_us, "us", "since the step began"},
    {"us", &S::us, "us", "how long it is"},
    {"parts", &S::parts, "", "how many ops, rows of a trace and gaps it is made of"},
    {"row", &S::row, "", "the op or row that has most of it, or that began after it", if_any},
  }};
}

template <>
Fields<account::PathReport> declared() {
  using P = account::PathReport;
  return {"CriticalPath", "The chain of kernels, collectives, copies and host work that decided how long steps were.", "account/critical_path.h", {
    {"ranks", &P::ranks, "", "ranks on the path, the most first; their `ms` add up to the mean step of the slowest rank"},
    {"step", &P::step, "", "number of the step of median length, which `segments` is of"},
    {"segments", &P::segments, "", "the path of that step in order of time; together exactly the step"},
  }};
}
// clang-format on

}  // namespace fsdpbench::app
