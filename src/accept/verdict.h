#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accept/element.h"
#include "accept/robust.h"
#include "base/error.h"

namespace fsdpbench::accept {

/// Outcome of a rule for a figure, from good to bad. A figure that was not measured never passes.
enum class Verdict : std::uint8_t {
  pass,
  unrated,       ///< there is nothing to hold it against: no reference, too few peers
  inconclusive,  ///< it was not measured, too seldom, or cannot be right
  fail,
};
std::string_view to_string(Verdict verdict);
/// Where tables have it: what failed comes first, then what could not be judged, what passed, what was not rated.
int place_in_tables(Verdict verdict);
/// One of base/error.h: ok, `failed`, or inconclusive.
int exit_code(Verdict verdict, ExitCode failed);

/// One rule applied to one figure.
struct Judgement {
  std::string rule;    ///< "floor", "tail", …
  std::string figure;  ///< what was judged, the same in each acceptance: "all_gather 33554432 B on 8 ranks"
  Verdict verdict = Verdict::inconclusive;
  Interval value;  ///< of the figure, in `unit`
  std::string unit;
  std::optional<double> bound;  ///< what it is held against, in `unit`; absent: nothing
  std::string sentence;         ///< why, with the numbers
  std::vector<int> ranks{};     ///< whom it is about; empty: nobody, or all
  bool on_host = false;         ///< processors of hosts did it, also where ranks compute on GPUs
  Place place{};                ///< where that is
  std::string part{};           ///< of what the figure is judged: "rank 4 (device 4 of node 0)"; empty: of all
  double took_s = 0;            ///< its share of the stages that it rests on

  /// For people: the figure and its part.
  std::string name() const { return part.empty() ? figure : figure + ": " + part; }
};

/// Judgement that is no question of numbers.
Judgement judged(std::string rule, std::string figure, Verdict verdict, std::string sentence);
/// Judgement of the median of `samples` (in `unit`; may be empty), with nothing yet said: inconclusive, no sentence.
Judgement of_samples(std::string rule, std::string figure, std::string unit, std::vector<double> samples);

/// Which side of a bound is the good one, the bound itself included.
enum class Good : std::uint8_t { above, below };
/// Verdict on the whole interval: inconclusive if the bound lies within it.
Verdict held(const Interval& value, double bound, Good good);

/// A published or measured figure of healthy machines of the same fabric.
struct Reference {
  double value = 0;
  std::string source;
};

/// The least that may be demanded of a machine: `tolerance` times the reference. Higher is better. Fails only if the
/// whole interval is below it, and passes only if the whole interval is above.
Judgement judge_floor(std::string figure, std::string unit, std::vector<double> samples,
                      const std::optional<Reference>& reference, double tolerance = 0.9);
/// Judges a time, or another figure of which less is better: at most the reference divided by `tolerance`. Its
/// rule is "latency".
Judgement judge_latency(std::string figure, std::string unit, std::vector<double> samples,
                        const std::optional<Reference>& reference, double tolerance = 0.9);
/// More than the links carry, or a device can do, is a wrong measurement: inconclusive, never a pass.
Judgement judge_ceiling(std::string figure, std::string unit, std::vector<double> samples, double ceiling);
/// Times of single iterations: p99 / p50 up to 1.5, standard deviation up to 5 % of the mean (nccl-tests'
/// analyze_perf_json levels). With fewer than 100 the maximum stands for the p99, and cannot pass.
Judgement judge_tail(std::string figure, std::vector<double> times_us);
/// Rate of messages of one size.
struct SizeRate {
  std::int64_t bytes = 0;
  Interval gb_per_s;
};
/// No size may carry more than `cliff` less than a smaller one. It fails only if their intervals say so, too.
Judgement judge_shape(std::string figure, std::vector<SizeRate> sizes, double cliff = 0.15);
/// The share of a step in which nothing is computed because of communication, at most `budget` of it. Lower is better.
Judgement judge_exposed(std::string figure, std::vector<double> shares, double budget);

/// Times beside something else over times alone, at most `limit` of them; absent: it is only told. Lower is better.
Judgement judge_slowdown(std::string figure, std::vector<double> ratios, std::optional<double> limit);

/// The worst of all, where nothing at all is inconclusive; what could be rated passes if nothing failed.
Verdict overall(std::span<const Judgement> judgements);

}  // namespace fsdpbench::accept
