#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace fsdpbench::config {

/// Fit to times of one kind of op: fixed_ns * parts + ns_per_amount * amount. A collective has a part a hop,
/// everything else one.
struct CalibrationLine {
  struct Refit {
    double fixed_ns = 0;
    double ns_per_amount = 0;
  };

  std::string kind;     ///< of ops, "all_gather"
  std::string unit;     ///< of the amount: "wire_bytes", "flops" of matrix products, or "bytes" that are touched
  int ranks = 0;        ///< of a collective's group; 0: no collective
  double fixed_ns = 0;  ///< a part
  double ns_per_amount = 0;
  double least = 0, most = 0;     ///< amounts that were measured
  int samples = 0;                ///< medians of ops that the line goes through
  double spread_pct = 0;          ///< half of these lie within it of the line
  std::vector<Refit> refits;      ///< lines that as good measurements would have given, each as likely as another
  std::vector<double> off;        ///< quantiles of what an op's median is over the line; at least one
  std::vector<double> residuals;  ///< quantiles of what an op took in one step over its median on that rank
};

/// Slow-down of ops of one kind while another kind keeps the device busy, by what both do.
struct CalibrationSlowdown {
  struct Cell {
    std::int64_t m = 0, n = 0, k = 0;  ///< of the product [m, k] x [k, n]
    std::int64_t bytes = 0;            ///< of the message, as nccl-tests count it
    int max_ctas = 0;                  ///< of NCCL's kernels; 0: its choice
    double times = 1;                  ///< time beside the other over time alone; noise may put it below 1
  };

  std::string of;            ///< "matrix_product", "all_gather" or "reduce_scatter"
  std::string beside;        ///< "matrix_product"; for that "all_gather", "reduce_scatter", or "both" of them at once
  DType dtype = DType::f32;  ///< of product and message
  std::vector<Cell> cells;   ///< at least one
};

/// Times of everything on a machine, from finished runs of it. A file of its own, so that it can be kept.
struct Calibration {
  static constexpr int kVersion = 3;

  struct Host {
    double issue_ns = 0;   ///< the host, for an op
    double launch_ns = 0;  ///< from the issue until an idle lane begins
    double gap_ns = 0;     ///< from the end of an op until its lane begins the next one
    double wake_ns = 0;    ///< from an event until what waited on another lane goes on
  };

  /// Error of the calibration on the steady step of a run that it was made of.
  struct Miss {
    double step = 0;     ///< measured less predicted, as a share of the predicted step
    double exposed = 0;  ///< the same of exposed communication, as a share of the predicted step
  };

  std::string machine;   ///< for people
  std::string revision;  ///< of the program that measured
  int cores = 0;         ///< that the ranks of the runs shared; 0: ranks compute on none, or nobody knows
  int ranks = 0;         ///< most ranks of a run that shared them
  Host host;
  std::vector<Host> host_refits;       ///< medians that as good measurements would have given
  std::vector<Miss> misses;            ///< a run each, at least one
  std::vector<CalibrationLine> lines;  ///< at most one of a kind, unit and number of ranks
  /// Empty: not measured, and what ops take beside others is in their lines, as it was in the runs.
  std::vector<CalibrationSlowdown> slowdowns;
};

/// The file's text, TOML.
std::string to_toml(const Calibration& calibration);
/// Throws ConfigError with file, line, key, value and what would be valid; also for another version.
Calibration read_calibration(const std::string& path);

}  // namespace fsdpbench::config
