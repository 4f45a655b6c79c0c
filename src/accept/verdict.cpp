#include "accept/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/enum_table.h"
#include "record/table.h"

namespace fsdpbench::accept {
namespace {

Judgement begun(std::string rule, std::string figure, std::string unit, std::vector<double> samples) {
  Judgement j = of_samples(std::move(rule), std::move(figure), std::move(unit), std::move(samples));
  if (j.value.n == 0) j.sentence = "it was not measured";
  return j;
}

std::string measured(const Judgement& j) {
  return fmt::format("{:.4g} {} (95 %: {:.4g} to {:.4g}, {} samples)", j.value.median, j.unit, j.value.low,
                     j.value.high, j.value.n);
}

/// Holds the whole interval against j.bound. `what` "is on both sides of" the `limit`, or what these words say.
struct Words {
  const char *passes, *fails, *unsure;
};
void hold(Judgement& j, Good good, const std::string& what, const Words& words, const std::string& limit) {
  j.verdict = held(j.value, *j.bound, good);
  j.sentence = fmt::format("{} {} {}", what,
                           j.verdict == Verdict::fail   ? words.fails
                           : j.verdict == Verdict::pass ? words.passes
                                                        : words.unsure,
                           limit);
}

/// A rate or a time against a reference.
Judgement against(Judgement j, Good good, const Words& words, const std::optional<Reference>& reference,
                  double tolerance) {
  if (reference) j.bound = good == Good::above ? tolerance * reference->value : reference->value / tolerance;
  if (j.value.n == 0) return j;
  if (!reference) {
    j.verdict = Verdict::unrated;
    j.sentence = fmt::format("{}; no reference of this fabric says what it should be", measured(j));
    return j;
  }
  hold(j, good, measured(j), words,
       good == Good::above
           ? fmt::format("the floor of {:.4g} {}, {:.0f} % of {}", *j.bound, j.unit, 100 * tolerance, reference->source)
           : fmt::format("the {:.4g} {} that are allowed: {} by {:.0f} %", *j.bound, j.unit, reference->source,
                         100 * tolerance));
  if (j.verdict == Verdict::inconclusive) j.sentence += ": more samples are needed";
  return j;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr EnumNames<Verdict> kNames{"pass", "unrated", "inconclusive", "fail"};
  return kNames[verdict];
}

Verdict held(const Interval& value, double bound, Good good) {
  const bool fails = good == Good::above ? value.high < bound : value.low > bound;
  const bool passes = good == Good::above ? value.low >= bound : value.high <= bound;
  return fails ? Verdict::fail : passes ? Verdict::pass : Verdict::inconclusive;
}

int place_in_tables(Verdict verdict) {
  constexpr EnumTable<Verdict, int> kPlaces{2, 3, 1, 0};
  return kPlaces[verdict];
}

int exit_code(Verdict verdict, ExitCode failed) {
  return static_cast<int>(verdict == Verdict::pass   ? ExitCode::ok
                          : verdict == Verdict::fail ? failed
                                                     : ExitCode::inconclusive);
}

Judgement of_samples(std::string rule, std::string figure, std::string unit, std::vector<double> samples) {
  Judgement j;
  j.rule = std::move(rule);
  j.figure = std::move(figure);
  j.unit = std::move(unit);
  j.value = median_interval(std::move(samples));
  return j;
}

Judgement judged(std::string rule, std::string figure, Verdict verdict, std::string sentence) {
  Judgement j;
  j.rule = std::move(rule);
  j.figure = std::move(figure);
  j.verdict = verdict;
  j.sentence = std::move(sentence);
  return j;
}

Judgement judge_floor(std::string figure, std::string unit, std::vector<double> samples,
                      const std::optional<Reference>& reference, double tolerance) {
  return against(begun("floor", std::move(figure), std::move(unit), std::move(samples)), Good::above,
                 {"reaches", "is below", "is on both sides of"}, reference, tolerance);
}

Judgement judge_latency(std::string figure, std::string unit, std::vector<double> samples,
                        const std::optional<Reference>& reference, double tolerance) {
  return against(begun("latency", std::move(figure), std::move(unit), std::move(samples)), Good::below,
                 {"is within", "is more than", "is on both sides of"}, reference, tolerance);
}

Judgement judge_ceiling(std::string figure, std::string unit, std::vector<double> samples, double ceiling) {
  Judgement j = begun("ceiling", std::move(figure), std::move(unit), std::move(samples));
  j.bound = ceiling;
  if (j.value.n == 0) return j;
  if (j.value.low > ceiling) {
    j.sentence =
        fmt::format("{} is more than the ceiling of {:.4g} {}: the measurement is wrong", measured(j), ceiling, j.unit);
  } else {
    j.verdict = Verdict::pass;
    j.sentence = fmt::format("{} is within the ceiling of {:.4g} {}", measured(j), ceiling, j.unit);
  }
  return j;
}

Judgement judge_tail(std::string figure, std::vector<double> times_us) {
  constexpr double kMostRatio = 1.5, kMostCv = 0.05;
  constexpr std::size_t kFewest = 100;
  std::vector<double> sorted = times_us;
  std::ranges::sort(sorted);
  Judgement j = begun("tail", std::move(figure), "us", std::move(times_us));
  if (j.value.n == 0) return j;
  j.bound = kMostRatio * j.value.median;
  const auto n = static_cast<double>(sorted.size());
  const bool enough = sorted.size() >= kFewest;
  const double late = enough ? sorted[static_cast<std::int64_t>(std::ceil(0.99 * n)) - 1] : sorted.back();
  const double mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / n;
  double squares = 0;
  for (const double t : sorted) squares += std::pow(t - mean, 2);
  const double cv = mean > 0 ? std::sqrt(squares / n) / mean : 0;
  const double ratio = j.value.median > 0 ? late / j.value.median : 0;
  j.sentence =
      fmt::format("{} is {:.2f} times the median of {}, the deviation {:.1f} % of the mean ({} samples)",
                  enough ? "p99" : "the maximum", ratio, app::shown(j.value.median, "us"), 100 * cv, sorted.size());
  if (!enough) {
    j.sentence += "; a p99 needs 100 samples";
  } else {
    j.verdict = ratio <= kMostRatio && cv <= kMostCv ? Verdict::pass : Verdict::fail;
  }
  return j;
}

Judgement judge_shape(std::string figure, std::vector<SizeRate> sizes, double cliff) {
  Judgement j = begun("shape", std::move(figure), "GB/s", {});
  if (sizes.size() < 2) {
    j.sentence = "one size has no shape";
    j.verdict = sizes.empty() ? Verdict::inconclusive : Verdict::unrated;
    return j;
  }
  std::ranges::sort(sizes, {}, &SizeRate::bytes);
  j.verdict = Verdict::pass;
  j.sentence = fmt::format("bandwidth does not fall by more than {:.0f} % from a size to a larger one", 100 * cliff);
  SizeRate best = sizes.front();
  for (const SizeRate& size : sizes) {
    const Interval& rate = size.gb_per_s;
    const bool falls = rate.median < best.gb_per_s.median * (1 - cliff);
    const bool surely = rate.high < best.gb_per_s.low * (1 - cliff);
    if (falls && (j.verdict == Verdict::pass || (surely && j.verdict == Verdict::inconclusive))) {
      j.verdict = surely ? Verdict::fail : Verdict::inconclusive;
      j.bound = best.gb_per_s.median * (1 - cliff);
      j.value = rate;
      j.sentence = fmt::format("{} B carry {:.4g} GB/s, {:.0f} % less than the {:.4g} GB/s of {} B{}", size.bytes,
                               rate.median, 100 * (1 - rate.median / best.gb_per_s.median), best.gb_per_s.median,
                               best.bytes, surely ? "" : ", but both scatter too much to be sure");
    }
    if (rate.median > best.gb_per_s.median) best = size;
  }
  return j;
}

Judgement judge_exposed(std::string figure, std::vector<double> shares, double budget) {
  Judgement j = begun("exposed communication", std::move(figure), "of a step", std::move(shares));
  j.bound = budget;
  if (j.value.n == 0) return j;
  const std::string share = fmt::format("{:.1f} % (95 %: {:.1f} to {:.1f}, {} steps) of a step", 100 * j.value.median,
                                        100 * j.value.low, 100 * j.value.high, j.value.n);
  hold(j, Good::below, share, {"keeps", "exceeds", "is on both sides of"},
       fmt::format("the budget of {:.0f} %", 100 * budget));
  return j;
}

Judgement judge_slowdown(std::string figure, std::vector<double> ratios, std::optional<double> limit) {
  Judgement j = begun("slow-down", std::move(figure), "times its time alone", std::move(ratios));
  j.bound = limit;
  if (j.value.n == 0) return j;
  if (!limit) {
    j.verdict = Verdict::unrated;
    j.sentence = fmt::format("{}; the profile has no limit", measured(j));
  } else {
    hold(j, Good::below, measured(j), {"are within", "are more than", "are on both sides of"},
         fmt::format("the profile's {:.3g}", *limit));
  }
  return j;
}

Verdict overall(std::span<const Judgement> judgements) {
  const auto any = [&](Verdict verdict) {
    return std::ranges::any_of(judgements, [&](const Judgement& j) { return j.verdict == verdict; });
  };
  if (judgements.empty()) return Verdict::inconclusive;
  if (any(Verdict::fail)) return Verdict::fail;
  if (any(Verdict::inconclusive)) return Verdict::inconclusive;
  return any(Verdict::pass) ? Verdict::pass : Verdict::unrated;
}

}  // namespace fsdpbench::accept
