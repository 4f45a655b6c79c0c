#pragma once

#include <algorithm>
#include <vector>

#include "clock/emulated_times.h"
#include "clock/machine.h"
#include "config/validate.h"
#include "model/model.h"

namespace fsdpbench::testing {

/// The machine of a configuration's own emulated rates.
class EmulatedMachine final : public clock::Machine {
 public:
  std::vector<plan::ModuleSizes> sizes(const config::RunConfig& config) const override {
    return model::make_model(config, plan::model_shapes(config.model))->sizes();
  }

  clock::Forecast forecast(const schedule::Training& training, const clock::Changes& changes = {}) const override {
    return clock::forecast(training, times(training, changes));
  }

  clock::LeastTimes least_times(const schedule::Training& training) const override {
    return {times(training, {}).steps.back()};
  }

  bool in_doubt() const override { return false; }

 private:
  static clock::OpTimes times(const schedule::Training& training, const clock::Changes& changes) {
    const config::Emulate& emulate = training.config.emulate;
    LinkModel link = *emulate.link();
    link.bytes_per_second *= changes.link_scale;
    return clock::emulated_times(
        training, {*emulate.compute_tflops * 1e12 * changes.compute_scale, link, emulate.pcie().value_or(LinkModel{})});
  }
};

/// Six small blocks on four ranks; a gather of one takes about as long as its forward.
inline config::RunConfig tunable_config() {
  config::RunConfig c;
  c.model.layers = 6;
  c.model.width = 64;
  c.model.heads = c.model.kv_heads = 4;
  c.model.ffn_width = 128;
  c.mesh.ranks = 4;
  c.train.seq_len = 64;
  c.train.batch_per_rank = 1;
  c.emulate.compute_tflops = 0.02;
  c.emulate.link_gb_per_s = 0.4;
  c.emulate.link_latency_us = 5;
  return c;
}

/// `config` as the tuner wants it: checked, with its mesh filled in.
inline config::RunConfig valid(config::RunConfig config) {
  config::validate(config);
  return config;
}

/// All keys of the space but `turned`.
inline std::vector<std::string> all_but(const std::vector<std::string>& turned) {
  std::vector<std::string> fixed;
  for (const char* key :
       {"fsdp.preset", "fsdp.strategy", "fsdp.reshard_after_forward", "fsdp.wrap", "fsdp.head_unit",
        "fsdp.activation_checkpointing", "fsdp.checkpoint_every", "train.batch_per_rank", "train.accumulate",
        "train.accumulate_mode", "fsdp.reshard_after_backward", "fsdp.param_dtype", "fsdp.reduce_dtype",
        "fsdp.forward_prefetch", "fsdp.backward_prefetch", "fsdp.all_gather_limit", "fsdp.reduce_scatter_buffers",
        "fsdp.separate_reduce_scatter_comm"}) {
    if (std::ranges::find(turned, key) == turned.end()) fixed.emplace_back(key);
  }
  return fixed;
}

}  // namespace fsdpbench::testing
