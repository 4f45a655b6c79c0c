#pragma once

#include <array>
#include <optional>
#include <vector>

#include "account/late_ranks.h"
#include "account/run_view.h"
#include "account/statistics.h"
#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "plan/plan.h"

namespace fsdpbench::account {

/// The model's own arithmetic: forward and backward once a microbatch. Recomputation is not the model's, as MFU is
/// defined (A. Chowdhery et al., PaLM, 2022, appendix B).
struct ModelFlops {
  double per_rank_and_step = 0;
  double tflops_per_rank = 0;  ///< achieved, at the median step
  std::optional<double>
      peak_tflops;                ///< the stated peak: a cluster file's or the emulated rate; real devices state none
  std::optional<double> mfu_pct;  ///< tflops_per_rank of it
};

/// `sizes`: by module; `step_ms`: above 0; `peak_tflops`: a GPU's of the cluster file, in TFLOP/s; absent: what
/// emulate.compute_tflops says.
ModelFlops model_flops(const std::vector<plan::ModuleSizes>& sizes, const config::RunConfig& config, double step_ms,
                       std::optional<double> peak_tflops);

/// One rank's own steps, whoever was slowest. The parts are sums over the run's middle steps, scaled to the rank's own
/// median step: compute + exposed_comm + exposed_copy + idle = step_ms.median.
struct RankMetrics {
  int rank = 0;
  Summary step_ms;
  double compute_ms = 0;
  double exposed_comm_ms = 0;
  double exposed_copy_ms = 0;
  double idle_ms = 0;
  std::optional<double> overlap_pct;  ///< of its own communication, what is hidden; absent without communication
  /// Over each of its links, that is with each group it communicates in: a step's transfers together, each from the
  /// arrival of its last peer until this link was done with it, where that is known (modelled links), else to its end;
  /// the median over the steps. 0: none.
  std::array<double, plan::kGroupCount> transfer_ms{};
};

/// The numbers of a run, in milliseconds. The step time counts each measured step with its slowest rank. The parts are
/// means over all ranks in the middle steps, scaled to the median step (run_view.h):
/// compute + exposed_comm + exposed_copy + idle = step_ms.median, and causes partition the last three.
struct RunMetrics {
  Summary step_ms;
  std::vector<double> steps_ms;  ///< each step's own, in order
  double compute_ms = 0;
  double comm_ms = 0;
  double exposed_comm_ms = 0;
  double exposed_copy_ms = 0;
  double idle_ms = 0;
  std::optional<double> overlap_pct;  ///< of comm_ms, what is not exposed; absent without communication
  double tokens_per_s = 0;            ///< over all ranks, at the median step
  /// Median over steps of step / max-plus bound of its own op durations; absent if only some ranks are in view.
  std::optional<double> bound_ratio;
  std::vector<RankMetrics> ranks;      ///< of the ranks in view
  std::optional<Settling> settling;    ///< of the measured steps; absent if there are too few
  std::optional<double> aa_noise_pct;  ///< what two halves of the steps differ by (statistics.h); absent likewise
};

/// Checks every identity of step_breakdown.h on every rank and step; throws if one fails. At least one measured step.
/// `tokens_per_step`: over all ranks and microbatches.
RunMetrics run_metrics(const RunView& run, const plan::Groups& groups, double tokens_per_step);

}  // namespace fsdpbench::account
