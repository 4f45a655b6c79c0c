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

struct LaneJitter {
  double longer_ms = 0;
  double later_ms = 0;
};

}  // namespace

template <>
const Fields<LaneJitter>& fields<LaneJitter>();
template <>
const Fields<StepJitter::Rank>& fields<StepJitter::Rank>();
template <>
const Fields<StepJitter>& fields<StepJitter>();
template <>
const Fields<Lateness>& fields<Lateness>();
template <>
const Fields<LateRank>& fields<LateRank>();
namespace {

/// A cause by its name.
struct CauseName : JsonType<Cause> {
  static void read(const JsonPart& j, Cause& into) {
    const std::optional<Cause> cause = account::cause_named(j.text());
    if (!cause) j.refuse("the name of a cause");
    into = *cause;
  }
};

/// What the lanes of a rank had to do with its jitter; those for state in host memory only where they are used.
struct Lanes {
  static json write(const StepJitter::Rank& rank) {
    json j = json::object();
    for (const Lane lane : kLanes) {
      const LaneJitter mine{rank.longer_ms[index_of(lane)], rank.later_ms[index_of(lane)]};
      if (is_offload_lane(lane) && mine.longer_ms == 0 && mine.later_ms == 0) continue;
      j[std::string(to_string(lane))] = JsonType<LaneJitter>::write(mine);
    }
    return j;
  }
  static void read(const JsonPart& j, StepJitter::Rank& rank) {
    for (const Lane lane : kLanes) {
      if (is_offload_lane(lane) && !j.has(to_string(lane))) continue;
      LaneJitter mine;
      JsonType<LaneJitter>::read(j.at(to_string(lane)), mine);
      rank.longer_ms[index_of(lane)] = mine.longer_ms;
      rank.later_ms[index_of(lane)] = mine.later_ms;
    }
  }
  static TypeFacts facts() { return {"map of object", JsonType<LaneJitter>::facts().object}; }
};

}  // namespace

template <>
const Fields<LaneJitter>& fields<LaneJitter>() {
  static const auto kAll =
      declare<LaneJitter>("LaneJitter", "One lane's part in a rank's jitter, means over the steps.",
                          "account/cause_report.h", [](Fields<LaneJitter>& f) {
                            f("longer_ms", &LaneJitter::longer_ms, "ms", "by how much its ops took longer in all");
                            f("later_ms", &LaneJitter::later_ms, "ms", "by how much they began later than they could");
                          });
  return kAll;
}

template <>
const Fields<StepJitter::Rank>& fields<StepJitter::Rank>() {
  using R = StepJitter::Rank;
  static const auto kAll =
      declare<R>("RankJitter", "The jitter of one rank.", "account/cause_report.h", [](Fields<R>& f) {
        f("rank", &R::rank, "", "number of the rank");
        f("ms", &R::ms, "ms", "its median step, less its typical one");
        f.template operator()<Lanes>("lanes", kItself, "", "by lane");
      });
  return kAll;
}

template <>
const Fields<StepJitter>& fields<StepJitter>() {
  static const auto kAll = declare<StepJitter>(
      "Jitter", "What the median step took beyond the typical one.", "account/cause_report.h",
      [](Fields<StepJitter>& f) {
        f("ms", &StepJitter::ms, "ms", "the difference; negative where the median step was shorter");
        f("share_pct", &StepJitter::share_pct, "%", "of the median step");
        f("compute_ms", &StepJitter::computation_ms, "ms", "of it, in computation");
        f("stalled_ms", &StepJitter::stalled_ms, "ms", "of it, while nothing computed: no cause has any of it");
        f("ranks", &StepJitter::ranks, "", "jitter of each rank");
      });
  return kAll;
}

template <>
const Fields<Lateness>& fields<Lateness>() {
  static const auto kAll = declare<Lateness>(
      "Lateness", "How a late rank compares with the others.", "account/late_ranks.h", [](Fields<Lateness>& f) {
        f("trials", &Lateness::trials, "", "how often ranks were compared");
        f("late", &Lateness::late, "", "how often at least half of all ranks were faster");
        f("by_chance", &Lateness::by_chance, "", "how likely that is if no rank differs");
        f("excess_ms", &Lateness::excess_ms, "ms", "of a step, what it took beyond the median of the others");
        f.then([](const JsonPart&, Lateness& lateness) { lateness.significant = true; });
      });
  return kAll;
}

template <>
const Fields<LateRank>& fields<LateRank>() {
  static const auto kAll = declare<LateRank>("LateRank", "A rank that takes longer than the others for certain.",
                                             "account/typical_step.h", [](Fields<LateRank>& f) {
                                               f("rank", &LateRank::rank, "", "number of the rank");
                                               f("work", &LateRank::work, "", "its own ops take longer");
                                               f("issue", &LateRank::issue, "", "its host takes longer");
                                               f("link", &LateRank::link, "", "its link takes longer");
                                             });
  return kAll;
}

template <>
const Fields<Counterfactual>& fields<Counterfactual>() {
  using C = Counterfactual;
  static const auto kAll = declare<C>(
      "Counterfactual", "The typical step replayed without one thing, or with another value of one key.",
      "account/counterfactual.h", [](Fields<C>& f) {
        f("step_ms", &C::step_ms, "ms", "what the step would take");
        f("gain_ms", &C::gain_ms, "ms", "how much less that is than the typical step; negative: more");
        f("ci_low", &C::ci_low, "ms", "lower end of the interval of the gain");
        f("ci_high", &C::ci_high, "ms", "upper end of that interval");
        f("interval", &C::interval, "", "what the two ends are, as in a summary");
        f("advised", &C::advised, "", "the interval is above 0 and the gain above the noise");
        f.template operator()<SignedWhole>("more_bytes", &C::more_bytes, "B", "more peak memory that it takes");
      });
  return kAll;
}

template <>
const Fields<CauseShare>& fields<CauseShare>() {
  using C = CauseShare;
  static const auto kAll = declare<C>(
      "Cause", "Why computation was not running: a mean over all ranks in the typical step.",
      "account/counterfactual.h", [](Fields<C>& f) {
        f.operator()<CauseName>("cause", &C::cause, "", "name of the cause ([explain.md](explain.md))");
        f("ms", &C::ms, "ms", "time of a step that it takes");
        f("share_pct", &C::share_pct, "%", "share of the step");
        f("unit", &C::unit, "", "the unit that lost most to it", {.when = When::if_any});
        f("op", &C::op, "", "the op that was waited for there, as traces name it", {.when = When::if_any});
        f("late_rank", &C::late_rank, "", "rank that came last most of the time, or whose link is slow",
          {.when = When::if_known});
        f("advice", &C::advice, "", "a sentence that says what would help; empty if nothing is known for certain");
        f("without", &C::without, "", "typical step without the cause");
        f.then([](const JsonPart&, C& share) {
          if (!share.without) return;
          share.without->cause = share.cause;
          share.without->late_rank = share.late_rank;
        });
      });
  return kAll;
}

namespace {

/// Another value of a key, and what it would bring.
const Fields<Counterfactual>& knob_fields() {
  using C = Counterfactual;
  static const auto kAll = declare<C>(
      "Knob", "A key that could be turned and gains more than the noise.", "account/counterfactual.h",
      [](Fields<C>& f) {
        f("set", &C::set, "", "the change, as `key=value`");
        f.operator()<CauseName>("cause", &C::cause, "", "the cause that it is meant for");
        f.spread(kItself, fields<C>());
        f(
            "advice", [](const C& c) { return c.advised ? std::optional(account::knob_sentence(c)) : std::nullopt; },
            "", "a sentence that says what the change gains; absent unless the change is advised");
      });
  return kAll;
}

}  // namespace

const Fields<CauseReport>& cause_fields() {
  using R = CauseReport;
  static const auto kAll = declare<R>("Causes", "", "account/cause_report.h", [](Fields<R>& f) {
    f("causes", &R::causes, "",
      "why computation was not running, the largest cause first. Together with `jitter.stalled_ms` they add up to the "
      "time without computation. Causes under 2 % of the step are only in `causes_small_ms`, unless removing them "
      "would gain that much");
    f("causes_small_ms", &R::small_ms, "ms", "all causes that are not listed, together");
    f("typical_ms", &R::typical_ms, "ms",
      "the typical step ([explain.md](explain.md)), of its slowest rank; where there is none, the median step");
    f("no_typical_step_because", &R::no_typical_because, "",
      "why there is no typical step: what the recorded ranks lack, a sentence", {.when = When::if_any});
    f("jitter", &R::jitter, "", "what the median step took beyond the typical one; absent without a typical step");
    f("late_ranks", &R::late_ranks, "",
      "ranks that are certain to take longer than the others ([explain.md](explain.md))");
    f.operator()<ListOf<knob_fields>>("knobs", &R::knobs, "",
                                      "keys whose change would gain more than the noise, the largest gain first");
  });
  return kAll;
}

const Fields<CauseReport>& stall_fields() {
  static const auto kAll = declare<CauseReport>("Stalls", "", "account/cause_report.h", [](Fields<CauseReport>& f) {
    f("stalled_ms", &CauseReport::stalled_ms, "ms", "exposed communication + exposed copies + idle");
  });
  return kAll;
}
namespace {

using account::PathKind;
using account::PathRank;
using account::PathSegment;
using nlohmann::json;

/// What one rank has of the critical path: kinds that have any.
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

template <>
const Fields<PathRank>& fields<PathRank>() {
  using P = PathRank;
  static const auto kAll =
      declare<P>("PathRank", "What one rank has of the critical path.", "account/critical_path.h", [](Fields<P>& f) {
        f("rank", &P::rank, "", "number of the rank");
        f("ms", &P::ms, "ms", "its part of the path, mean over steps");
        f("share_pct", &P::share_pct, "%", "share of the path");
        f.operator()<PathByKind>("kinds_ms", &P::kinds_ms, "ms",
                                 "`ms` by kind: `kernels`, `collectives`, `copies`, `host`, `waits` (for a rank whose "
                                 "records are missing, or for a processor core), `unknown`");
      });
  return kAll;
}

template <>
const Fields<PathSegment>& fields<PathSegment>() {
  using S = PathSegment;
  static const auto kAll = declare<S>(
      "PathSegment", "Neighbours on the critical path that are of one rank and kind.", "account/critical_path.h",
      [](Fields<S>& f) {
        f("rank", &S::rank, "", "number of the rank");
        f("kind", &S::kind, "", "as in `kinds_ms`");
        f("begin_us", &S::begin_us, "us", "since the step began");
        f("us", &S::us, "us", "how long it is");
        f("parts", &S::parts, "", "how many ops, rows of a trace and gaps it is made of");
        f("row", &S::row, "", "the op or row that has most of it, or that began after it", {.when = When::if_any});
      });
  return kAll;
}

template <>
const Fields<account::PathReport>& fields<account::PathReport>() {
  using P = account::PathReport;
  static const auto kAll = declare<P>(
      "CriticalPath", "The chain of kernels, collectives, copies and host work that decided how long steps were.",
      "account/critical_path.h", [](Fields<P>& f) {
        f("ranks", &P::ranks, "",
          "ranks on the path, the most first; their `ms` add up to the mean step of the slowest rank");
        f("step", &P::step, "", "number of the step of median length, which `segments` is of");
        f("segments", &P::segments, "", "the path of that step in order of time; together exactly the step");
      });
  return kAll;
}

}  // namespace fsdpbench::app
