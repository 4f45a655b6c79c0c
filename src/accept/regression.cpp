#include "accept/regression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <set>

#include "account/compare.h"
#include "account/statistics.h"
#include "base/student.h"

namespace fsdpbench::accept {
namespace {

constexpr std::size_t kFewestResults = 3;
// The chance that a gate calls any of its figures worse by mistake; with medians of few values it is up to 0.02.
constexpr double kFalseAlarms = 0.012;
constexpr double kMissed = 0.04;          // of each figure that is worse by the threshold
constexpr double kFalseOutliers = 0.005;  // of a baseline whose results scatter alike
constexpr double kLeastOutlier = 0.05;    // repeated runs of a healthy machine agree within some 3 %
constexpr int kMostBorrowed = 6;          // results' worth of scatter that other figures lend
constexpr int kRecordedWorth = 3;         // results' worth of scatter that is recorded of short runs
constexpr double kSettled_s = 2;          // of CPU ranks that ran so long the scatter shows in few results
constexpr double kShort_s = 0.15;         // and of those that ran so short it is recorded

const MeasuredFigure* figure_named(const ResultFigures& result, const std::string& name) {
  const auto found = std::ranges::find(result.figures, name, &MeasuredFigure::name);
  return found == result.figures.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(std::span<const ResultFigures> results) {
  std::vector<std::string> names;
  for (const ResultFigures& result : results) {
    for (const MeasuredFigure& figure : result.figures) {
      if (std::ranges::find(names, figure.name) == names.end()) names.push_back(figure.name);
    }
  }
  return names;
}

double log_variance(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double value : values) mean += std::log(value) / static_cast<double>(values.size());
  for (const double value : values) squares += (std::log(value) - mean) * (std::log(value) - mean);
  return squares / static_cast<double>(values.size() - 1);
}

bool positive(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double value) { return value > 0; });
}

/// Whether a value at `place` belongs to another distribution than the others: Student's of logarithms, by the scatter
/// of the others, for the farthest of all (Bonferroni). Three robust deviations of so few values would leave out
/// results of a busy machine that only scatter, and the scatter of the rest would be too small.
bool is_outlier(const std::vector<double>& values, std::size_t place) {
  std::vector<double> others = values;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(place));
  double mean = 0;
  for (const double value : others) mean += std::log(value) / static_cast<double>(others.size());
  const double off = std::abs(std::log(values[place]) - mean);
  const double error = std::sqrt(log_variance(others) * (1 + 1 / static_cast<double>(others.size())));
  const double tail = kFalseOutliers / (2 * static_cast<double>(values.size()));
  return off > std::log1p(kLeastOutlier) && off > student_quantile(tail, static_cast<int>(others.size()) - 1) * error;
}

/// Which of `values` count: all, or those that are no outliers.
std::vector<bool> inliers(const std::vector<double>& values) {
  std::vector<bool> kept(values.size(), true);
  if (!positive(values)) return kept;
  const std::size_t fewest = std::max(kFewestResults, values.size() / 2 + 1);
  for (;;) {
    std::vector<double> left;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!kept[i]) continue;
      left.push_back(values[i]);
      places.push_back(i);
    }
    if (left.size() <= fewest) return kept;
    const double middle = account::median(left);
    const auto off = [middle](double value) { return std::abs(std::log(value / middle)); };
    const auto farthest = static_cast<std::size_t>(std::ranges::max_element(left, {}, off) - left.begin());
    if (!is_outlier(left, farthest)) return kept;
    kept[places[farthest]] = false;
  }
}

/// `every`: outliers count, too.
BaselineFigure together(std::span<const ResultFigures> results, const std::string& name, bool every) {
  BaselineFigure all;
  std::vector<const MeasuredFigure*> figures;
  std::vector<std::string> owners;
  std::vector<double> values;
  for (const ResultFigures& result : results) {
    const MeasuredFigure* figure = figure_named(result, name);
    if (figure == nullptr || figure->value.n == 0) continue;
    figures.push_back(figure);
    owners.push_back(result.name);
    values.push_back(figure->value.median);
  }
  if (figures.empty()) {
    for (const ResultFigures& result : results) {
      if (const MeasuredFigure* figure = figure_named(result, name)) all.figure = *figure;
    }
    return all;
  }
  all.figure = *figures.front();
  if (figures.size() == 1) {
    all.values = values;
    return all;
  }
  const std::vector<bool> counts = every ? std::vector<bool>(values.size(), true) : inliers(values);
  all.figure.samples.clear();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!counts[i]) {
      all.left_out.push_back(fmt::format("{} ({:.4g} {})", owners[i], values[i], all.figure.unit));
      continue;
    }
    all.values.push_back(values[i]);
    all.figure.samples.insert(all.figure.samples.end(), figures[i]->samples.begin(), figures[i]->samples.end());
  }
  all.figure.value = median_interval(all.values);
  return all;
}

/// Whose results show how much they scatter.
bool scatters(const BaselineFigure& figure) {
  return figure.values.size() >= kFewestResults && positive(figure.values) && !figure.figure.counted;
}

/// Whether the only result that has the figure consists of runs enough to show how much they scatter.
bool has_runs(const BaselineFigure& figure) {
  return figure.values.size() == 1 && figure.figure.samples_are_runs &&
         figure.figure.samples.size() >= kFewestResults && positive(figure.figure.samples);
}

/// By how much more the median of n normal values varies than their mean; about pi / 2 from 11 values on.
double median_variance(std::size_t n) {
  constexpr std::array kOfFew{1.0, 1.0, 1.346, 1.193, 1.434, 1.288, 1.473, 1.345, 1.495, 1.383};
  return n <= kOfFew.size() ? kOfFew[n - 1] : std::numbers::pi / 2;
}

/// What the figures of one unit say together of how results scatter.
struct Family {
  double variance = 0;  ///< mean of theirs
  int figures = 0;
};

std::map<std::string, Family> families(const std::vector<BaselineFigure>& figures) {
  std::map<std::string, Family> all;
  for (const BaselineFigure& figure : figures) {
    if (!scatters(figure) || figure.figure.explains) continue;  // what is exposed scatters far more than a step
    Family& family = all[figure.figure.unit];
    family.variance += log_variance(figure.values);
    ++family.figures;
  }
  for (auto& [unit, family] : all) family.variance /= family.figures;
  return all;
}

/// How many times as bad: above 1 for less of a rate and for more of a time.
double worse_factor(double ratio, const Change& c) { return c.higher_is_better ? 1 / ratio : ratio; }

/// ratio, its interval and at_most of now / before, by what several results scatter, and by what such results were
/// recorded to (`recorded`: a standard deviation of logarithms).
void compare_results(const BaselineFigure& before, const std::vector<double>& now, const Family& family,
                     double recorded, double tail, Change& change) {
  const int own = static_cast<int>(before.values.size()) - 1;
  const int lent = std::min(kMostBorrowed, own * (family.figures - 1));
  const int known = recorded > 0 ? kRecordedWorth : 0;
  const double mine = log_variance(before.values);
  const int freedom = own + lent + known;
  // Shrunk upwards only: small messages scatter more than large ones of the same unit.
  const double variance = std::max(mine, (own * mine + lent * family.variance + known * recorded * recorded) / freedom);
  const std::size_t n = before.values.size(), k = now.size();
  const double error =
      std::sqrt(variance * (median_variance(n) / static_cast<double>(n) + median_variance(k) / static_cast<double>(k)));
  const double width = student_quantile(tail, freedom) * error;
  change.evidence = ChangeEvidence::results;
  change.ratio = account::median(now) / account::median(before.values);
  change.low = change.ratio * std::exp(-width);
  change.high = change.ratio * std::exp(width);
  change.at_most = worse_factor(change.ratio, change) * std::exp(student_quantile(kMissed, freedom) * error);
}

void compare_two(const BaselineFigure& before, const BaselineFigure& now, double threshold, Change& change) {
  const std::vector<double>&a = before.figure.samples, &b = now.figure.samples;
  const Interval &left = change.before, &right = change.judgement.value;
  change.ratio = right.median / left.median;
  if (before.figure.counted) {
    change.evidence = ChangeEvidence::counted;
    change.low = change.high = change.ratio;
  } else if (std::min(a.size(), b.size()) >= static_cast<std::size_t>(account::kFewestTrials) && positive(a) &&
             positive(b)) {
    const account::Comparison c = account::compare_runs(a, b, threshold);
    change.evidence = ChangeEvidence::samples;
    change.ratio = c.ratio;
    change.low = c.ci_low;
    change.high = c.ci_high;
  } else if (left.n > 1 && right.n > 1 && left.low > 0) {
    change.evidence = ChangeEvidence::intervals;
    change.low = right.low / left.high;
    change.high = right.high / left.low;
  } else {
    change.evidence = ChangeEvidence::numbers;
    change.low = change.high = change.ratio;
  }
  change.at_most = worse_factor(change.higher_is_better ? change.low : change.high, change);
}

std::string how_much(double ratio, bool higher_is_better) {
  const double percent = 100 * (ratio - 1);
  if (std::abs(percent) < 0.05) return "the same";
  return fmt::format("{:.1f} % {} ({})", std::abs(percent), percent > 0 ? "more" : "less",
                     (percent > 0) == higher_is_better ? "better" : "worse");
}

/// `scatter`: between runs, as unseen_scatter() has it; `earlier`: results of the baseline that have the figure.
std::string rests_on(ChangeEvidence evidence, double scatter, std::size_t earlier) {
  const bool unseen = evidence == ChangeEvidence::samples || evidence == ChangeEvidence::intervals;
  if (unseen && scatter > 1) {
    return fmt::format("; {} cannot say how runs scatter, so it is assumed that they may differ by a factor of {:.3g}",
                       earlier == 1 ? "one earlier result" : fmt::format("{} earlier results", earlier), scatter);
  }
  if (unseen) return "; on a computed clock results do not scatter";
  if (evidence == ChangeEvidence::counted) return "; it is counted, not measured";
  if (evidence == ChangeEvidence::numbers) return "; two single numbers: how much they scatter is not known";
  return "";
}

/// How long the samples took that are times; 0: they are none.
double seconds_of(const MeasuredFigure& figure) {
  const double unit_s = figure.unit == "ms" ? 1e-3 : figure.unit == "us" ? 1e-6 : 0;
  return unit_s * std::accumulate(figure.samples.begin(), figure.samples.end(), 0.0);
}

/// Two results of an unchanged machine may differ by `scatter`, which neither of them shows.
void widen_unseen(double scatter, Change& c) {
  if (c.evidence != ChangeEvidence::samples && c.evidence != ChangeEvidence::intervals) return;
  c.low /= scatter;
  c.high *= scatter;
  c.at_most *= scatter;
}

/// Stands for any factor: a rank whose peer has lost its processor waits for whole time slices.
constexpr double kSlicesLost = 1000;

double most_taken(std::span<const ResultFigures> results) {
  double most = 0;
  for (const ResultFigures& result : results) most = std::max(most, result.others_share);
  return most;
}

/// Times may have been shorter, and rates higher, by what other programs took.
void widen(double before_taken, double now_taken, Change& c) {
  if (c.evidence == ChangeEvidence::counted || c.evidence == ChangeEvidence::numbers) return;
  const double before = most_slowed(before_taken), now = most_slowed(now_taken);
  c.low /= c.higher_is_better ? before : now;
  c.high *= c.higher_is_better ? now : before;
  c.at_most *= before;
}

/// Fills verdict and sentence from ratio, interval and evidence, which is of so many `earlier` results (or runs of
/// one); `recorded`: what is known of the scatter of such results beside their own; `taken`: the most that other
/// programs took of the processors.
void decide(Change& c, bool explains, std::size_t earlier, double scatter, const std::string& recorded, double taken,
            double threshold) {
  const double worse = worse_factor(c.ratio, c);
  const double least_worse = worse_factor(c.higher_is_better ? c.high : c.low, c);
  const double most_worse = worse_factor(c.higher_is_better ? c.low : c.high, c);
  // Then the ends of the interval are a convention, which says nothing to a reader.
  const bool any_factor = c.evidence != ChangeEvidence::counted && most_slowed(taken) >= kSlicesLost;
  const std::string interval =
      any_factor || c.evidence == ChangeEvidence::counted || c.evidence == ChangeEvidence::numbers
          ? std::string()
          : fmt::format(", interval of now / before {:.3f} to {:.3f}", c.low, c.high);
  Judgement& j = c.judgement;
  j.sentence = fmt::format("{:.4g} {} instead of {:.4g}: {}{}{}", j.value.median, j.unit, c.before.median,
                           how_much(c.ratio, c.higher_is_better), interval, rests_on(c.evidence, scatter, earlier));
  if (c.evidence == ChangeEvidence::results) j.sentence += fmt::format(", by {} results{}", earlier, recorded);
  if (c.evidence == ChangeEvidence::runs) j.sentence += fmt::format(", by {} runs of one result", earlier);
  if (c.evidence == ChangeEvidence::numbers) {
    j.verdict = explains ? Verdict::unrated : Verdict::inconclusive;
    return;
  }
  // One that is worse by just the threshold is measured as less every other time: it matters if it may be as much.
  const bool matters = worse - 1 >= threshold / 2 && most_worse - 1 >= threshold;
  c.better = 1 / worse - 1 >= threshold && most_worse < 1;
  if (explains) {
    j.verdict = Verdict::unrated;
    j.sentence += "; it is a part of another figure, which is judged";
  } else if (matters && least_worse > 1) {
    j.verdict = Verdict::fail;
  } else if (c.evidence == ChangeEvidence::counted || c.at_most - 1 < threshold) {
    j.verdict = Verdict::pass;
  } else {
    j.verdict = Verdict::inconclusive;
    if (any_factor) {
      j.sentence += "; so busy a host may have slowed it by any factor: measure again when the host is quiet";
      return;
    }
    j.sentence += fmt::format(
        "; it may be worse by up to {:.1f} %, so {:.3g} % cannot be excluded: add {}", 100 * (c.at_most - 1),
        100 * threshold,
        earlier < kFewestResults ? fmt::format("{} more to the baseline", kFewestResults - earlier) : "results");
  }
}

/// One side is 0. Bytes are counted, and may be none; nothing that was measured takes no time.
void decide_without_ratio(Change& c, bool counted, bool explains) {
  Judgement& j = c.judgement;
  const double was = c.before.median, is = j.value.median;
  j.sentence = fmt::format("{:.4g} {} instead of {:.4g}: zero has no ratio", is, j.unit, was);
  if (counted) {
    const bool same = was == is, worse = c.higher_is_better ? is < was : is > was;
    j.verdict = !same && worse ? Verdict::fail : Verdict::pass;
    c.better = !same && !worse;
  } else if (explains) {
    j.verdict = Verdict::unrated;
  } else {
    j.verdict = Verdict::inconclusive;
    j.sentence += ", and cannot be measured";
  }
}

}  // namespace

std::string_view to_string(ChangeEvidence evidence) {
  switch (evidence) {
    case ChangeEvidence::counted: return "counted";
    case ChangeEvidence::results: return "several results";
    case ChangeEvidence::runs: return "runs of these results";
    case ChangeEvidence::samples: return "samples of these results";
    case ChangeEvidence::intervals: return "intervals of these results";
    case ChangeEvidence::numbers: return "single numbers";
    case ChangeEvidence::none: return "nothing";
  }
  return {};
}

double most_slowed(double others_share) {
  constexpr double kHalf = 0.5;
  return others_share > kHalf ? kSlicesLost : 1 / (1 - others_share);
}

double unseen_scatter(MeasuredOn measured_on, double seconds) {
  constexpr double kScatter = 1.2;
  if (measured_on == MeasuredOn::computed_clock) return 1;
  if (measured_on == MeasuredOn::gpus || seconds >= kSettled_s) return kScatter;
  return std::pow(kScatter, std::sqrt(kSettled_s / (seconds > 0 ? seconds : kShort_s)));
}

double recorded_scatter(MeasuredOn measured_on, double seconds) {
  constexpr double kSettled = 0.026, kShort = 0.16;
  if (measured_on != MeasuredOn::processors || seconds <= 0 || seconds >= kSettled_s) return 0;
  const double power = std::log(kShort / kSettled) / std::log(kSettled_s / kShort_s);
  return std::min(kShort, kSettled * std::pow(kSettled_s / seconds, power));
}

std::vector<BaselineFigure> baseline_figures(std::span<const ResultFigures> results) {
  std::vector<BaselineFigure> all;
  for (const std::string& name : names_of(results)) all.push_back(together(results, name, false));
  return all;
}

std::vector<Change> judge_changes(std::span<const ResultFigures> baseline, std::span<const ResultFigures> now,
                                  double threshold) {
  std::vector<BaselineFigure> before = baseline_figures(baseline);
  std::vector<BaselineFigure> after;
  for (const std::string& name : names_of(now)) after.push_back(together(now, name, true));
  const MeasuredOn measured_on = baseline.front().measured_on;
  std::set<std::string> by_runs;  // figures
  for (BaselineFigure& f : before) {
    // Whoever simulates trials has drawn them: their program is compared by its samples.
    if (measured_on == MeasuredOn::computed_clock || !has_runs(f)) continue;
    const auto found =
        std::ranges::find_if(after, [&](const BaselineFigure& g) { return g.figure.name == f.figure.name; });
    if (found == after.end() || !has_runs(*found)) continue;
    f.values = f.figure.samples;
    found->values = found->figure.samples;
    by_runs.insert(f.figure.name);
  }
  const std::map<std::string, Family> by_unit = families(before);
  const auto judged =
      std::ranges::count_if(before, [](const BaselineFigure& f) { return scatters(f) && !f.figure.explains; });
  const double tail = kFalseAlarms / static_cast<double>(std::max<std::ptrdiff_t>(judged, 1));
  std::vector<Change> changes;
  const auto begin = [&](const BaselineFigure& f) -> Change& {
    Change& change = changes.emplace_back();
    change.judgement.rule = "change";
    change.judgement.figure = f.figure.name;
    change.judgement.unit = f.figure.unit;
    change.higher_is_better = f.figure.higher_is_better;
    return change;
  };
  for (const BaselineFigure& f : before) {
    Change& change = begin(f);
    change.before = f.figure.value;
    change.left_out = f.left_out;
    const auto found =
        std::ranges::find_if(after, [&](const BaselineFigure& g) { return g.figure.name == f.figure.name; });
    if (change.before.n > 0) change.judgement.bound = change.before.median;
    if (found == after.end() || found->figure.value.n == 0) {
      change.judgement.sentence = "the baseline has it, and the result does not";
      continue;
    }
    change.judgement.value = found->figure.value;
    if (change.before.n == 0) {
      change.judgement.verdict = Verdict::unrated;
      change.judgement.sentence = "the baseline never measured it";
      continue;
    }
    if (change.before.median <= 0 || change.judgement.value.median <= 0) {
      decide_without_ratio(change, f.figure.counted, f.figure.explains);
      continue;
    }
    std::string recorded;
    if (scatters(f) && positive(found->values)) {
      // A sample that is a run of its own does not say how long that run was.
      const double seconds =
          by_runs.contains(f.figure.name) ? 0 : seconds_of(f.figure) / static_cast<double>(f.values.size());
      const double known = recorded_scatter(measured_on, seconds);
      compare_results(f, found->values, f.figure.explains ? Family{.figures = 1} : by_unit.at(f.figure.unit), known,
                      tail, change);
      if (known > 0) {
        recorded = fmt::format(", and runs as short as these ({:.2g} s) were recorded to scatter by {:.0f} %", seconds,
                               100 * known);
      }
      if (by_runs.contains(f.figure.name)) change.evidence = ChangeEvidence::runs;
    } else {
      compare_two(f, *found, threshold, change);
    }
    const double scatter = unseen_scatter(measured_on, std::min(seconds_of(f.figure), seconds_of(found->figure)));
    widen_unseen(scatter, change);
    widen(most_taken(baseline), most_taken(now), change);
    const double taken = std::max(most_taken(baseline), most_taken(now));
    decide(change, f.figure.explains, f.values.size(), scatter, recorded, taken, threshold);
    if (taken > 0) {
      change.judgement.sentence += fmt::format("; other programs took up to {:.0f} % of the processors", 100 * taken);
    }
  }
  for (const BaselineFigure& f : after) {
    if (std::ranges::any_of(before, [&](const BaselineFigure& g) { return g.figure.name == f.figure.name; })) continue;
    Change& change = begin(f);
    change.judgement.value = f.figure.value;
    change.judgement.verdict = Verdict::unrated;
    change.judgement.sentence = "it is new: the baseline does not have it";
  }
  return changes;
}

}  // namespace fsdpbench::accept
