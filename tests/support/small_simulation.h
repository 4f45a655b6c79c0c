#pragma once

#include <functional>
#include <string>

#include "account/run_metrics.h"
#include "base/error.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"

namespace fsdpbench::testing {

/// One block of two heads on a computed clock at plain rates: small enough to count its ops and bytes by hand.
inline config::RunConfig small_simulation() {
  config::RunConfig c;
  c.model.layers = 1;
  c.model.width = 16;
  c.model.heads = c.model.kv_heads = 2;
  c.model.ffn_width = 32;
  c.model.vocab = 256;
  c.train.steps = 2;
  c.train.warmup = 1;
  c.train.seq_len = 8;
  c.train.batch_per_rank = 1;
  c.device.backend = config::BackendKind::virtual_;
  c.emulate.compute_tflops = 1e-3;
  c.emulate.link_gb_per_s = 0.1;
  return c;
}

/// Blocks of four experts, each token visits two: on `ranks`, of which two split the experts.
inline config::RunConfig small_mixture(std::int64_t layers, std::int64_t ranks) {
  config::RunConfig c = small_simulation();
  c.model.layers = layers;
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh.ranks = ranks;
  c.mesh.expert = 2;
  return c;
}

/// Median step of a simulation of `c`, which is validated.
inline double median_step_ms(const config::RunConfig& c) {
  const engine::Setup p = engine::set_up(c);
  const engine::Measurement m = engine::simulate(p, engine::simulated_times(p, nullptr));
  return account::run_metrics({p.schedules, m.traces, m.slowest_ns}, p.plan.groups, 1).step_ms.median;
}

/// Why `make` refuses a configuration; empty if it does not.
inline std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

}  // namespace fsdpbench::testing
