#include "app/report/job_path_json.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/enum_table.h"
#include "metrics/critical_path.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

double path_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// What one rank has of the critical path.
struct PathByKind {
  static json write(const EnumTable<metrics::PathKind, double>& times) {
    json j = json::object();
    for (const metrics::PathKind kind : kEnumerators<metrics::PathKind>) {
      if (times[kind] > 0) j[std::string(to_string(kind))] = times[kind];
    }
    return j;
  }
  static TypeFacts facts() { return {"map of number"}; }
};
struct PathRankOfJob {
  int rank = 0;
  double ms = 0, share_pct = 0;
  EnumTable<metrics::PathKind, double> kinds_ms;
};

/// Neighbours of one kind on one rank together.
struct PathSegment {
  int rank = 0;
  metrics::PathKind kind = metrics::PathKind::unknown;
  std::int64_t begin_ns = 0, ns = 0;
  std::size_t parts = 0;
  std::string row;  ///< of the longest part
  std::int64_t longest_ns = 0;
};

std::vector<PathRankOfJob> path_ranks(const ExplainedJob& e) {
  std::int64_t all = 0;
  for (const metrics::PathOfRank& rank : e.explanation.path) all += rank.all();
  std::vector<PathRankOfJob> ranks;
  for (const metrics::PathOfRank& rank : e.explanation.path) {
    PathRankOfJob& one = ranks.emplace_back();
    const auto mean = [&](std::int64_t ns) {
      return static_cast<double>(ns) / 1e6 / static_cast<double>(e.explanation.steps_ms.size());
    };
    one.rank = e.job.ranks[static_cast<std::size_t>(rank.place)].rank;
    one.ms = mean(rank.all());
    one.share_pct = 100 * static_cast<double>(rank.all()) / static_cast<double>(all);
    for (const metrics::PathKind kind : kEnumerators<metrics::PathKind>) one.kinds_ms[kind] = mean(rank.ns[kind]);
  }
  return ranks;
}

std::vector<PathSegment> path_segments(const ExplainedJob& e) {
  const metrics::CriticalPath& path = e.explanation.median_path;
  std::vector<PathSegment> segments;
  for (const metrics::PathPart& part : path.parts) {
    const foreign::RankRows& rows = e.job.ranks[static_cast<std::size_t>(part.place)];
    if (segments.empty() || segments.back().rank != rows.rank || segments.back().kind != part.kind) {
      segments.push_back({rows.rank, part.kind, part.time.begin - path.step.begin, 0, 0, {}, 0});
    }
    PathSegment& segment = segments.back();
    const std::int64_t ns = part.time.end - part.time.begin;
    segment.ns += ns;
    ++segment.parts;
    if (ns <= segment.longest_ns || part.op < 0) continue;
    segment.longest_ns = ns;
    segment.row = rows.names[static_cast<std::size_t>(rows.device[static_cast<std::size_t>(part.op)].name)];
  }
  return segments;
}

}  // namespace

template <>
const Fields<PathRankOfJob>& fields<PathRankOfJob>() {
  using P = PathRankOfJob;
  static const auto kAll =
      declare<P>("JobPathRank", "What one rank has of the critical path.", "metrics/critical_path.h", [](Fields<P>& f) {
        f("rank", &P::rank, "", "number of the rank");
        f("ms", &P::ms, "ms", "its part of the path, mean over steps");
        f("share_pct", &P::share_pct, "%", "share of the path");
        f.operator()<PathByKind>("kinds_ms", &P::kinds_ms, "ms",
                                 "`ms` by kind: `kernels`, `collectives`, `copies`, `host`, `waits` (for a rank "
                                 "without a file), `unknown`");
      });
  return kAll;
}

template <>
const Fields<PathSegment>& fields<PathSegment>() {
  using S = PathSegment;
  static const auto kAll =
      declare<S>("JobPathSegment", "Neighbours on the critical path that are of one rank and kind.",
                 "metrics/critical_path.h", [](Fields<S>& f) {
                   f("rank", &S::rank, "", "number of the rank");
                   f("kind", &S::kind, "", "as in `kinds_ms`");
                   f(
                       "begin_us", [](const S& s) { return path_us(s.begin_ns); }, "us", "since the step began");
                   f(
                       "us", [](const S& s) { return path_us(s.ns); }, "us", "how long it is");
                   f(
                       "parts", [](const S& s) { return s.parts; }, "", "how many rows and gaps it is made of");
                   f("row", &S::row, "", "the row that has most of it, or that began after it", {.when = When::if_any});
                 });
  return kAll;
}

const Fields<ExplainedJob>& path_fields() {
  using E = ExplainedJob;
  static const auto kAll = declare<E>(
      "JobPath", "The chain of kernels, collectives, copies and host work that decided how long steps were.",
      "metrics/critical_path.h", [](Fields<E>& f) {
        f(
            "ranks", [](const E& e) { return path_ranks(e); }, "",
            "ranks on the path, the most first; their `ms` add up to the mean of `step.slowest_rank.steps_ms`");
        f(
            "step",
            [](const E& e) {
              const metrics::CriticalPath& path = e.explanation.median_path;
              const auto& steps = e.explanation.ranks[static_cast<std::size_t>(path.place)].steps;
              const auto& cut = e.recognition.ranks[static_cast<std::size_t>(path.place)].cut.steps;
              const std::int64_t begin =
                  path.step.begin - e.explanation.ranks[static_cast<std::size_t>(path.place)].clock_offset_ns;
              for (std::size_t s = 0; s < steps.size(); ++s) {
                if (cut[s].window.begin == begin) return steps[s].number;
              }
              return steps.front().number;
            },
            "", "number of the step of median length, which `segments` is of");
        f(
            "segments", [](const E& e) { return path_segments(e); }, "",
            "the path of that step in order of time; together exactly the step");
      });
  return kAll;
}

}  // namespace fsdpbench::app
