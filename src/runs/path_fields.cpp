#include "runs/path_fields.h"

#include <nlohmann/json.hpp>
#include <string>

#include "account/critical_path.h"
#include "base/enum_table.h"
#include "record/json_part.h"

namespace fsdpbench::app {
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
      declare<P>("PathRank", "What one rank has of the critical path.", "account/path_report.h", [](Fields<P>& f) {
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
  static const auto kAll =
      declare<S>("PathSegment", "Neighbours on the critical path that are of one rank and kind.",
                 "account/path_report.h", [](Fields<S>& f) {
                   f("rank", &S::rank, "", "number of the rank");
                   f("kind", &S::kind, "", "as in `kinds_ms`");
                   f("begin_us", &S::begin_us, "us", "since the step began");
                   f("us", &S::us, "us", "how long it is");
                   f("parts", &S::parts, "", "how many ops, rows of a trace and gaps it is made of");
                   f("row", &S::row, "", "the op or row that has most of it, or that began after it",
                     {.when = When::if_any});
                 });
  return kAll;
}

template <>
const Fields<account::PathReport>& fields<account::PathReport>() {
  using P = account::PathReport;
  static const auto kAll = declare<P>(
      "CriticalPath", "The chain of kernels, collectives, copies and host work that decided how long steps were.",
      "account/path_report.h", [](Fields<P>& f) {
        f("ranks", &P::ranks, "",
          "ranks on the path, the most first; their `ms` add up to the mean step of the slowest rank");
        f("step", &P::step, "", "number of the step of median length, which `segments` is of");
        f("segments", &P::segments, "", "the path of that step in order of time; together exactly the step");
      });
  return kAll;
}

}  // namespace fsdpbench::app
