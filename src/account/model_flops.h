#pragma once

#include <optional>
#include <vector>

#include "config/run_config.h"
#include "plan/module_sizes.h"

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

}  // namespace fsdpbench::account
