// Bytes of a training step by category against PyTorch's own FSDP2, FSDP1, DDP, autograd and losses, as memory.py
// recorded them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>

#include "clock/caching_allocator.h"
#include "config/cluster.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"

namespace fsdpbench::engine {
namespace {

using nlohmann::json;

/// Bytes at the peak, as ours are named; what FSDP2 gathers into and reduces out of is communication.
std::map<std::string, double> pytorch(const json& bytes) {
  return {{"parameter_shards", bytes["Sharded Param"]},
          {"unsharded_parameters", bytes["Unsharded Param"]},
          {"gradients", bytes["Sharded Grad"].get<double>() + bytes["Unsharded Grad"].get<double>()},
          {"optimizer", bytes["OptState"]},
          {"communication_buffers", bytes["All Gather"].get<double>() + bytes["Reduce Scatter"].get<double>()},
          {"activations", bytes["Activation"].get<double>() + bytes["Temp"].get<double>() +
                              bytes["Inputs"].get<double>() + bytes["Buffer"].get<double>()}};
}

clock::CachingAllocator::Statistics forecast(std::vector<std::string> settings, const config::Cluster& cluster,
                                             bool libraries) {
  settings.insert(settings.begin(),
                  {"device.backend=virtual", "simulate.cluster=dgx-h100", "emulate.link_gb_per_s=none",
                   "emulate.compute_tflops=none", "train.warmup=1", "train.steps=1"});
  config::RunConfig config = config::load_profile(config::find_profile("quickstart"), settings);
  config::validate(config);
  const Setup setup = set_up(config);
  clock::OpTimes times = simulated_times(setup, &cluster);
  if (!libraries) times.workspace_bytes = 0;
  return clock::allocator_forecast(setup, times);
}

/// The jobs that found the memory of those before them in their processes given back, with their keys beside the shape;
/// what ran is gpu_corpus.py's.
const std::map<std::string, std::vector<std::string>>& jobs() {
  static const std::map<std::string, std::vector<std::string>> all{
      {"fsdp2", {}},   {"fsdp2-4", {}}, {"fsdp2-hsdp-2x2", {"fsdp.strategy=hybrid_shard", "mesh.shard=2"}},
      {"fsdp2-1", {}}, {"fsdp1", {}},   {"fsdp1-hybrid-2x2", {"fsdp.strategy=hybrid_shard", "mesh.shard=2"}}};
  return all;
}

std::vector<std::string> settings_of(const json& job) {
  const json& shape = job["shape_used"];
  std::vector<std::string> settings{"model.kind=decoder",
                                    "model.tied_head=false",
                                    "fsdp.param_dtype=bf16",
                                    "fsdp.reduce_dtype=fp32",
                                    "simulate.loss=referenced",  // one() holds its logits
                                    "fsdp.preset=" + job["engine"].get<std::string>(),
                                    "mesh.ranks=" + job["world"].dump(),
                                    "model.kv_heads=" + shape["heads"].dump()};
  const std::map<std::string, std::string> names{{"width", "model.width"},   {"heads", "model.heads"},
                                                 {"ffn", "model.ffn_width"}, {"layers", "model.layers"},
                                                 {"vocab", "model.vocab"},   {"batch", "train.batch_per_rank"},
                                                 {"seq", "train.seq_len"}};
  for (const auto& [name, key] : names) settings.push_back(key + "=" + shape[name].dump());
  for (const std::string& more : jobs().at(job["name"])) settings.push_back(more);
  return settings;
}

TEST(MemoryPeer, PeaksAreThoseOfPyTorchByCategory) {
  std::ifstream file(FSDPBENCH_PEER_DIR "/recorded/memory-2.11.0.json");
  const json cases = json::parse(file);
  ASSERT_EQ(cases.size(), 107U);
  const config::Cluster cluster = config::load_cluster("dgx-h100");
  for (const json& recorded : cases) {
    std::vector<std::string> settings;
    for (const auto& [key, value] : recorded["keys"].items()) {
      settings.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
    }
    const auto found = forecast(settings, cluster, false);  // fake tensors call no library
    const double total = recorded["bytes"]["Total"];
    // Eight blocks of DDP peak within a block's backward, where gradients come one by one; ours come at once.
    const json& keys = recorded["keys"];
    const bool within = keys.contains("fsdp.strategy") && keys["fsdp.strategy"] == "no_shard" &&
                        keys["model.layers"] == 8 && keys.contains("fsdp.activation_checkpointing");
    EXPECT_NEAR(static_cast<double>(found.peak_allocated) / total, 1, within ? 0.03 : 0.02) << keys;
    if (within) continue;
    const auto theirs = pytorch(recorded["bytes"]);
    for (const MemoryCategory category : kMemoryCategories) {
      const std::string name(to_string(category));
      EXPECT_NEAR(static_cast<double>(found.at_peak[index_of(category)]), theirs.at(name),
                  std::max(0.02 * theirs.at(name), 1e-4 * total))
          << name << ' ' << keys;
    }
  }
}

// Bytes that jobs reserved of an H100 that their ranks shared.
TEST(MemoryPeer, JobsOnAnH100HeldWhatTheirConfigurationSays) {
  std::ifstream file(FSDPBENCH_PEER_DIR "/../../profiles/recorded/gpu/h100-2026-11-28-pytorch-jobs.json");
  const json recorded = json::parse(file);
  const config::Cluster cluster = config::load_cluster("dgx-h100");
  std::size_t seen = 0;
  for (const json& job : recorded) {
    if (!jobs().contains(job["name"])) continue;
    ++seen;
    const auto found = forecast(settings_of(job), cluster, true);
    EXPECT_NEAR(static_cast<double>(found.peak_allocated) / job["peak_allocated"].get<double>(), 1, 0.03)
        << job["name"];
    EXPECT_NEAR(static_cast<double>(found.peak_reserved) / job["peak_reserved"].get<double>(), 1, 0.10) << job["name"];
  }
  EXPECT_EQ(seen, jobs().size());
}

}  // namespace
}  // namespace fsdpbench::engine
