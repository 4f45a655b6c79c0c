#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "config/accuracy.h"

namespace fsdpbench::bench {

/// A published figure and what the model says of it.
struct Prediction {
  std::string id;       ///< of the row
  std::string group;    ///< rows that one median is taken of
  std::string what;     ///< for people: what was measured on what
  std::string cluster;  ///< of profiles/clusters
  int ranks = 0;
  double bytes = 0;  ///< of a collective
  double published = 0;
  double predicted = 0;
  std::string site;    ///< of a collective: where it was measured, if the cluster's file has figures of it
  double plain = 0;    ///< of a collective: predicted by the cluster's file without a site
  double typical = 0;  ///< of a training: predicted by clock::kTypicalEfficiency
  double by_all = 0;   ///< of a training: by the efficiency that simulations take, its own source's rows included
  double by_gpu = 0;   ///< by what other frameworks of other sources reach on its GPU; 0: there are none
  bool by_framework = false;  ///< predicted by what other sources of its framework reach there
  double tokens = 0;          ///< of a training: a rank and microbatch
  int nodes = 1;              ///< of a collective
  std::string how;            ///< what the model took: an algorithm, a limit
  std::string calibrates;     ///< not empty: a figure of the model was set by this row, so it is no prediction
  std::string assumed;        ///< what the source does not state and was assumed
  bool in_domain = true;      ///< of the size that the goal speaks of
  bool symmetric = false;     ///< over symmetric memory: of no kind of errors, as one source has all such rows
  bool experts = false;       ///< ranks split experts: of no kind of errors, as one source has all such rows
  std::string not_predicted;  ///< not empty: why there is no prediction; then predicted is 0
  std::string source;
  std::string note;

  /// It set a figure of a cluster's file that holds without a site.
  bool calibrates_plain() const { return !calibrates.empty() && site.empty(); }
  /// Relative: +0.1 is 10 % too much.
  double error() const { return predicted / published - 1; }
  bool counts() const { return in_domain && calibrates.empty() && !experts && not_predicted.empty(); }
};

using Predictions = std::vector<Prediction>;

/// The median of how large the errors are, whatever their sign. At least one error.
double median_error(std::vector<double> errors);

/// Every row of profiles/published/collectives.csv, or of another file of that form. Throws ConfigError that names the
/// line.
Predictions predict_collectives(const std::string& path);

/// Every row of profiles/published/training.csv, or of another file of that form, and what the rows say of
/// efficiencies.
struct Trainings {
  Predictions rows;
  std::vector<config::KnownEfficiency> efficiencies;
};

/// Tokens a second and rank. A row whose `calibrates` is efficiency says something of what its framework reaches on its
/// GPU; a row is predicted by the median of those of its group that other sources have. Throws ConfigError that names
/// the line.
Trainings predict_training(const std::string& path);

/// How far published times lie from predicted ones.
config::Accuracy accuracy_of(const Predictions& collectives, const Trainings& training);

/// Medians and 95th percentiles of errors: of collectives by size, of trainings by what simulations take and by other
/// sources alone.
void print_summary(const Predictions& collectives, const Trainings& training);
/// For each kind of error: how many rows lie in the 95 % interval that the rows of all other sources give.
void print_coverage(const config::Accuracy& accuracy);

/// As a table with errors row by row, then medians: of what counts, of what counts and states everything, and by group.
void print(const Predictions& rows, const char* title, const char* unit);

/// As CSV with the same numbers. Throws OutputError.
void write_csv(const Predictions& rows, const std::string& path);

}  // namespace fsdpbench::bench
