#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "accept/verdict.h"
#include "account/judge.h"

namespace fsdpbench::accept {

/// One figure of one result: a bandwidth, a time of a step, bytes.
struct MeasuredFigure {
  std::string name;
  std::string unit;
  bool higher_is_better = false;
  bool counted = false;         ///< not measured: the same whenever it is repeated, as bytes are
  bool explains = false;        ///< a part of another figure: by single numbers it decides nothing, and need not
  std::vector<double> samples;  ///< repetitions within the result (steps); may be empty although there is a value
  Interval value;               ///< of the samples, or as the result has it
};

/// Device that the times of a result were measured on.
enum class MeasuredOn : std::uint8_t {
  gpus,
  processors,      ///< CPU ranks, whose threads the operating system places anew in every run
  computed_clock,  ///< repeated, it is the same to the bit
};

/// Figures of one result.
struct ResultFigures {
  std::string name;  ///< of the result, for people
  std::vector<MeasuredFigure> figures;
  double others_share = 0;  ///< of the processors that its ranks computed on, what other programs took; 0: little
  MeasuredOn measured_on = MeasuredOn::gpus;
};

/// One figure over all results of a baseline.
struct BaselineFigure {
  MeasuredFigure figure;              ///< its value is the median over results, or of a single one its own
  std::vector<double> values;         ///< the median of each result that counts
  std::vector<std::string> left_out;  ///< results whose value is an outlier, "node7 (2.1 GB/s)"
};

/// All figures of all `results`, in the order in which they first occur, without outliers (account::inliers()).
std::vector<BaselineFigure> baseline_figures(std::span<const ResultFigures> results);

/// A figure now and before.
struct Change {
  Judgement judgement;  ///< rule "change"; its value is the figure now, its bound the baseline's median
  Interval before;
  bool higher_is_better = false;
  account::Difference difference;     ///< rests on nothing if a side does not have it, or is 0
  std::vector<std::string> left_out;  ///< as in BaselineFigure
  std::string reason;                 ///< the end of its sentence, which has no number of this figure alone

  bool better() const { return difference.verdict == account::Verdict::faster; }
};

/// Factor by which CPU ranks may have been slower because other programs took this share of the processors. Up to a
/// half each rank still has a processor when it wants one, or soon, and loses no more than that share. Beyond, a rank
/// whose peer has lost its processor waits for whole time slices: small collectives were measured to take 100 to 300
/// times as long at a share of 0.9 (profiles/recorded/accept/2026-11-26-gates.txt), so 1,000 is returned.
double most_slowed(double others_share);

/// By what factor two results of an unchanged machine may differ where fewer than three earlier ones are there to show
/// it; `seconds`: of measurement in the shorter of the two, 0 if that is not known. 1 on a computed clock.
///
/// [Note: scatter that no single result shows]
/// From run to run threads are placed anew, memory is elsewhere and clocks have another temperature; within a run all
/// that stays as it is, so its steps say nothing of it. profiles/recorded/accept/2026-11-25-scatter.txt has runs of CPU
/// ranks on a machine without other work: of 2 s of steps they scatter by 2.6 % (a standard deviation of logarithms)
/// and no two of them differ by more than a factor of 1.1; of 0.15 s by 16 %, and up to a factor of 1.74. So 1.2 is
/// assumed, and for CPU ranks of which less than 2 s were measured a power of it that grows as a mean of fewer steps
/// scatters: 1.2 to the square root of (2 s / seconds), which is 1.95 for 0.15 s; so much, too, where nothing tells how
/// long they were measured, as in collectives of an acceptance. Of GPUs nothing is recorded; repeated runs of them are
/// published to agree within some 3 %.
double unseen_scatter(MeasuredOn measured_on, double seconds);

/// Scatter of results of CPU ranks measured for less than 2 s: a standard deviation of logarithms, from the
/// same record as unseen_scatter(), 0.026 for 2 s and 0.16 for 0.15 s. 0 for longer ones, for GPUs and a computed
/// clock, and if `seconds` is 0, not known. Their scatter has a longer tail than Student's test expects, and of a few
/// that happen to agree it would expect far too little: of 40 gates against five of them 4 were false.
double recorded_scatter(MeasuredOn measured_on, double seconds);

/// Differences below this are of no interest: repeated runs of a healthy machine agree within some 3 %.
inline constexpr double kChangeThreshold = 0.05;

/// Holds the figures of `now` (one result, or several of the same machine) against those of `baseline`, none empty, by
/// account::judge():
/// - fail: slower. All figures together accuse an unchanged machine in at most two of a hundred gates.
/// - pass: that it is worse by `threshold` is excluded with 96 % (Difference::at_most): a figure that is worse by so
///   much passes in at most five of a hundred gates.
/// - inconclusive: neither. More results, on either side, make it rarer.
/// Two things are known of the scatter of results beside their own values: that of all figures of the same unit, which
/// counts as up to six results more, and recorded_scatter() of short runs, which counts as three. A part of another
/// figure neither lends nor fails: the whole does. Fewer than three earlier results cannot show how results scatter:
/// unseen_scatter(). What other programs took of the processors widens every interval by most_slowed() of that share,
/// before and now. Two single numbers cannot be judged, whatever they are: inconclusive, or unrated if they only
/// explain another figure. What is new is unrated. What the baseline has and `now` has not is inconclusive, and so is a
/// measured figure of 0.
std::vector<Change> judge_changes(std::span<const ResultFigures> baseline, std::span<const ResultFigures> now,
                                  double threshold = kChangeThreshold);

}  // namespace fsdpbench::accept
