#include "accept/regression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "record/table.h"

namespace fsdpbench::accept {
namespace {

using account::RestsOn;

// The chance that a gate calls any of its figures worse by mistake; with medians of few values it is up to 0.02.
constexpr double kFalseAlarms = 0.012;
constexpr int kMostBorrowed = 6;   // results' worth of scatter that other figures lend
constexpr int kRecordedWorth = 3;  // results' worth of scatter that is recorded of short runs
constexpr double kSettled_s = 2;   // of CPU ranks that ran so long the scatter shows in few results
constexpr double kShort_s = 0.15;  // and of those that ran so short it is recorded

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

/// `every`: outliers count, too.
BaselineFigure together(std::span<const ResultFigures> results, const std::string& name, bool every) {
  BaselineFigure all;
  std::vector<const MeasuredFigure*> figures;
  std::vector<std::string> owners;
  std::vector<double> values;
  for (const ResultFigures& result : results) {
    const MeasuredFigure* figure = figure_named(result, name);
    if (figure == nullptr) continue;
    all.figure = *figure;
    if (figure->value.n == 0) continue;
    figures.push_back(figure);
    owners.push_back(result.name);
    values.push_back(figure->value.median);
  }
  if (figures.empty()) return all;
  all.figure = *figures.front();
  const std::vector<bool> counts = every ? std::vector<bool>(values.size(), true) : account::inliers(values);
  all.figure.samples.clear();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!counts[i]) {
      all.left_out.push_back(fmt::format("{} ({:.4g} {})", owners[i], values[i], all.figure.unit));
      continue;
    }
    all.values.push_back(values[i]);
    all.figure.samples.insert(all.figure.samples.end(), figures[i]->samples.begin(), figures[i]->samples.end());
  }
  if (figures.size() > 1) all.figure.value = median_interval(all.values);
  return all;
}

bool enough(const std::vector<double>& values) {
  return std::cmp_greater_equal(values.size(), account::kFewestTrials) && std::ranges::min(values) > 0;
}

/// Scatter of results as the figures of one unit show it together.
struct Family {
  double variance = 0;  ///< mean of theirs
  int figures = 0;
};

std::map<std::string, Family> families(const std::vector<BaselineFigure>& figures) {
  std::map<std::string, Family> all;
  for (const BaselineFigure& figure : figures) {
    // Exposed times scatter far more than a step.
    if (!enough(figure.values) || figure.figure.counted || figure.figure.explains) continue;
    Family& family = all[figure.figure.unit];
    family.variance += account::log_variance(figure.values);
    ++family.figures;
  }
  for (auto& [unit, family] : all) family.variance /= family.figures;
  return all;
}

std::string how_much(double ratio, bool higher_is_better) {
  const double change = ratio - 1;
  const std::string percent = fmt::format("{:.1f}", std::abs(100 * change));
  if (percent == "0.0") return "the same";
  const bool less = std::signbit(change);
  return fmt::format("{} % {} ({})", percent, less ? "less" : "more", less != higher_is_better ? "better" : "worse");
}

/// `scatter`: between runs, as unseen_scatter() has it; `earlier`: results of the baseline that have the figure.
std::string rests_on(RestsOn evidence, double scatter, std::size_t earlier) {
  switch (evidence) {
    case RestsOn::samples:
    case RestsOn::intervals:
      if (scatter == 1) return "; on a computed clock results do not scatter";
      return fmt::format(
          "; {} cannot say how runs scatter, so it is assumed that they may differ by a factor of {:.3g}",
          earlier == 1 ? "one earlier result" : fmt::format("{} earlier results", earlier), scatter);
    case RestsOn::counted: return "; it is counted, not measured";
    case RestsOn::numbers: return "; two single numbers: how much they scatter is not known";
    case RestsOn::results: return fmt::format(", by {} results", earlier);
    case RestsOn::turns:
    case RestsOn::nothing: break;
  }
  return {};
}

/// Duration of samples that are times; 0: they are no times.
double seconds_of(const MeasuredFigure& figure) {
  const double unit_s = figure.unit == "ms" ? 1e-3 : figure.unit == "us" ? 1e-6 : 0;
  return unit_s * std::accumulate(figure.samples.begin(), figure.samples.end(), 0.0);
}

/// Stands for any factor: a rank whose peer has lost its processor waits for whole time slices.
constexpr double kSlicesLost = 1000;

/// The result beside which other programs took most.
const ResultFigures& busiest(std::span<const ResultFigures> results) {
  return *std::ranges::max_element(results, {}, &ResultFigures::others_share);
}

/// Advice for a figure that may be worse by the threshold: how to find out. `seconds` is how long each earlier result
/// measured it, if runs as short as that are recorded to scatter, else 0.
std::string what_would_tell(const account::Samples& before, const account::Samples& now, const account::Rule& rule,
                            double seconds) {
  const auto results = static_cast<int>(before.results.size());
  const std::optional<int> needed = account::results_to_exclude(before, now, rule);
  const int more = std::max(needed.value_or(results), account::kFewestTrials) - results;
  if (seconds > 0) {
    const double times = static_cast<double>(before.repetitions.size()) / results;
    return fmt::format("store results that measure it for {:.3g} s ({:.0f} times instead of {:.0f}){}", kSettled_s,
                       std::ceil(times * kSettled_s / seconds), times,
                       needed ? fmt::format(", or {} more like these", more) : "");
  }
  return more > 0 ? fmt::format("add {} more to the baseline", more) : "gate several results together";
}

/// Fills verdict and sentence from the difference; `why`: what it rests on; `disturbed`: the result beside which
/// other programs took most; `advice`: for a figure that may be worse by the threshold.
void decide(Change& c, bool explains, const std::string& why, const ResultFigures& disturbed,
            const std::function<std::string()>& advice, double threshold) {
  const account::Difference& d = c.difference;
  const double taken = disturbed.others_share;
  const bool sharp = d.evidence == RestsOn::counted || d.evidence == RestsOn::numbers;
  // Then the ends of the interval are a convention, which says nothing to a reader.
  const bool any_factor = d.evidence != RestsOn::counted && most_slowed(taken) >= kSlicesLost;
  Judgement& j = c.judgement;
  const app::Shown number(j.unit, std::max(j.value.median, c.before.median));
  j.sentence =
      fmt::format("{} instead of {}: {}{}", number.text(j.value.median), number.number(c.before.median),
                  how_much(d.ratio, c.higher_is_better),
                  any_factor || sharp ? "" : fmt::format(", interval of now / before {:.3f} to {:.3f}", d.low, d.high));
  c.reason = why;
  if (d.evidence == RestsOn::numbers) {
    j.verdict = explains ? Verdict::unrated : Verdict::inconclusive;
  } else if (explains) {
    j.verdict = Verdict::unrated;
    c.reason += "; it is a part of another figure, which is judged";
  } else if (d.verdict == account::Verdict::slower) {
    j.verdict = Verdict::fail;
  } else if (d.evidence == RestsOn::counted || d.at_most - 1 < threshold) {
    j.verdict = Verdict::pass;
  } else if (any_factor) {
    c.reason = fmt::format("; so busy a host may have slowed it by any factor: measure {} again when the host is quiet",
                           disturbed.name);
  } else {
    j.sentence += fmt::format(", at most {:.1f} % worse", 100 * (d.at_most - 1));
    c.reason += fmt::format("; {:.3g} % cannot be excluded: {}", 100 * threshold, advice());
  }
  if (taken > 0) c.reason += fmt::format("; other programs took up to {:.0f} % of the processors", 100 * taken);
  j.sentence += c.reason;
}

/// One side is 0. Bytes are counted, and may be none; nothing that was measured takes no time.
void decide_without_ratio(Change& c, bool counted, bool explains) {
  Judgement& j = c.judgement;
  const double was = c.before.median, is = j.value.median;
  j.sentence = fmt::format("{:.4g} {} instead of {:.4g}: zero has no ratio", is, j.unit, was);
  if (counted) {
    c.difference.verdict = was == is                          ? account::Verdict::no_difference
                           : (is > was) == c.higher_is_better ? account::Verdict::faster
                                                              : account::Verdict::slower;
    j.verdict = c.difference.verdict == account::Verdict::slower ? Verdict::fail : Verdict::pass;
  } else if (explains) {
    j.verdict = Verdict::unrated;
  } else {
    j.sentence += ", and cannot be measured";
  }
}

}  // namespace

double most_slowed(double others_share) {
  constexpr double kHalf = 0.5;
  return others_share > kHalf ? kSlicesLost : 1 / (1 - others_share);
}

double unseen_scatter(MeasuredOn measured_on, double seconds) {
  constexpr double kScatter = 1.2;
  if (measured_on == MeasuredOn::computed_clock) return 1;
  if (measured_on == MeasuredOn::gpus) return kScatter;
  return std::pow(kScatter, std::sqrt(std::max(1.0, kSettled_s / (seconds > 0 ? seconds : kShort_s))));
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
  const auto find_in = [](std::vector<BaselineFigure>& figures, const std::string& name) {
    const auto found = std::ranges::find(figures, name, [](const BaselineFigure& f) { return f.figure.name; });
    return found == figures.end() ? nullptr : &*found;
  };
  const MeasuredOn measured_on = baseline.front().measured_on;
  const std::map<std::string, Family> by_unit = families(before);
  const auto judged = std::ranges::count_if(
      before, [](const BaselineFigure& f) { return !f.figure.counted && !f.figure.explains && !f.values.empty(); });
  const ResultFigures &busiest_before = busiest(baseline), &busiest_now = busiest(now);
  const ResultFigures& disturbed =
      busiest_now.others_share < busiest_before.others_share ? busiest_before : busiest_now;
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
    const BaselineFigure* const found = find_in(after, f.figure.name);
    if (change.before.n > 0) change.judgement.bound = change.before.median;
    if (found == nullptr || found->figure.value.n == 0) {
      change.judgement.sentence = change.reason = "the baseline has it, and the result does not";
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
    const double seconds = seconds_of(f.figure) / static_cast<double>(f.values.size());
    const double recorded = recorded_scatter(measured_on, seconds);
    const double unseen = unseen_scatter(measured_on, std::min(seconds_of(f.figure), seconds_of(found->figure)));
    account::Rule rule{.threshold = threshold,
                       .tail = kFalseAlarms,
                       .figures = static_cast<int>(std::max<std::ptrdiff_t>(judged, 1)),
                       .more_is_better = f.figure.higher_is_better,
                       .counted = f.figure.counted,
                       .unseen = unseen};
    if (const auto family = by_unit.find(f.figure.unit); family != by_unit.end() && !f.figure.explains) {
      const int lent = (static_cast<int>(f.values.size()) - 1) * (family->second.figures - 1);
      rule.also.push_back({family->second.variance, std::min(kMostBorrowed, lent)});
    }
    if (recorded > 0) rule.also.push_back({recorded * recorded, kRecordedWorth});
    const account::Samples earlier{f.values, f.figure.samples, f.figure.value,
                                   most_slowed(busiest_before.others_share)};
    const account::Samples later{found->values, found->figure.samples, found->figure.value,
                                 most_slowed(busiest_now.others_share)};
    change.difference = account::judge(earlier, later, rule);
    std::string why = rests_on(change.difference.evidence, unseen, f.values.size());
    if (recorded > 0 && change.difference.evidence == RestsOn::results) {
      why += fmt::format(", and runs as short as these ({:.2g} s) were recorded to scatter by {:.0f} %", seconds,
                         100 * recorded);
    }
    const auto advice = [&] { return what_would_tell(earlier, later, rule, recorded > 0 ? seconds : 0); };
    decide(change, f.figure.explains, why, disturbed, advice, threshold);
  }
  for (const BaselineFigure& f : after) {
    if (find_in(before, f.figure.name) != nullptr) continue;
    Change& change = begin(f);
    change.judgement.value = f.figure.value;
    change.judgement.verdict = Verdict::unrated;
    change.judgement.sentence = "it is new: the baseline does not have it";
  }
  return changes;
}

}  // namespace fsdpbench::accept
