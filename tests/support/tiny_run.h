#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/backend.h"
#include "engine/run.h"
#include "engine/simulate.h"

namespace fsdpbench::testing {

/// Samples from a counter hash: the same everywhere, no file needed.
class HashedBatches : public engine::BatchSource {
 public:
  explicit HashedBatches(std::int32_t vocab) : vocab_(vocab) {}
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::int32_t>(hash(sample, i) % static_cast<std::uint64_t>(vocab_));
    }
  }
  void features(std::int64_t sample, std::span<float> inputs, std::span<float> targets) const override {
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = unit(hash(sample, i));
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = unit(hash(sample, i + inputs.size()));
  }

 private:
  static std::uint64_t hash(std::int64_t sample, std::size_t i) {  // splitmix64
    std::uint64_t z = static_cast<std::uint64_t>(sample) * 0x9E3779B97F4A7C15ULL + i * 0xD1B54A32D192ED03ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  static float unit(std::uint64_t h) { return static_cast<float>(h >> 40) / 8388608.0F - 1.0F; }
  std::int32_t vocab_;
};

/// A decoder that trains a step in a few milliseconds, with sizes that divide by nothing in particular.
inline config::RunConfig tiny_decoder() {
  config::RunConfig c;
  c.model.layers = 3;
  c.model.width = 24;
  c.model.heads = 4;
  c.model.kv_heads = 2;
  c.model.ffn_width = 37;
  c.model.vocab = 53;
  c.mesh.ranks = 4;
  c.train.steps = 4;
  c.train.warmup = 1;
  c.train.seq_len = 12;
  c.train.batch_per_rank = 2;
  return c;
}

/// One whose layers and tokens two or four ranks can split.
inline config::RunConfig splittable_decoder() {
  config::RunConfig c = tiny_decoder();
  c.model.kv_heads = 4;
  c.model.ffn_width = 36;
  c.model.vocab = 52;
  return c;
}

/// Fills in the mesh as config::validate does; tiny vocabularies would not pass that.
inline config::RunConfig settled(config::RunConfig c) {
  const std::int64_t ranks = c.mesh.data_ranks();
  const bool none = c.fsdp.strategy == config::Strategy::no_shard || ranks == 1;
  if (c.mesh.shard == 0) c.mesh.shard = none ? 1 : ranks;
  if (c.mesh.replicate == 0) c.mesh.replicate = ranks / c.mesh.shard;
  return c;
}

/// Trains `asked` on the CPU, on hashed batches; the final parameters are kept.
inline engine::Measurement run_tiny(const config::RunConfig& asked, engine::RunHooks hooks = {}) {
  config::RunConfig config = settled(asked);
  config.device.backend = config::BackendKind::cpu;
  const engine::Setup setup = engine::set_up(config);
  const HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  hooks.keep_parameters = true;
  return engine::run(*backend::cpu::make_cpu_backend(), setup, batches, hooks);
}

/// The emulation above on a computed clock: the same schedules and times, to the nanosecond, on any machine.
inline engine::Measurement simulate_tiny(const config::RunConfig& asked) {
  const engine::Setup setup = engine::set_up(settled(asked));
  return engine::simulate(setup, engine::simulated_times(setup, nullptr));
}

}  // namespace fsdpbench::testing
