#include "account/model_flops.h"

namespace fsdpbench::account {

ModelFlops model_flops(const std::vector<plan::ModuleSizes>& sizes, const config::RunConfig& config, double step_ms,
                       std::optional<double> peak_tflops) {
  ModelFlops m;
  for (const plan::ModuleSizes& s : sizes) m.per_rank_and_step += s.forward_flops + s.backward_flops;
  m.per_rank_and_step *= static_cast<double>(config.train.accumulate);
  m.tflops_per_rank = m.per_rank_and_step / (step_ms / 1000) / 1e12;
  m.peak_tflops = peak_tflops ? peak_tflops : config.emulate.compute_tflops;
  if (m.peak_tflops) m.mfu_pct = 100 * m.tflops_per_rank / *m.peak_tflops;
  return m;
}

}  // namespace fsdpbench::account
