#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "config/fields.h"
#include "config/presets.h"

namespace fsdpbench::testing {

/// Values of every key, small enough that a case takes milliseconds, with the ends of what a key may be where they cost
/// nothing. A key without a line here gets the words that its own description quotes, both truths, or the least numbers
/// that it accepts.
inline const std::map<std::string, std::vector<config::Value>>& chosen_values() {
  using V = std::vector<config::Value>;
  const auto ints = [](std::initializer_list<std::int64_t> list) { return V(list.begin(), list.end()); };
  const auto numbers = [](std::initializer_list<double> list) { return V(list.begin(), list.end()); };
  const auto words = [](std::initializer_list<const char*> list) {
    V values;
    for (const char* word : list) values.emplace_back(std::string(word));
    return values;
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  const V elements = ints({0, 1, 700, 7000, 20000, 1000000, kMost});
  const V prefetched{
      std::string("none"),    std::int64_t{1},          std::int64_t{2},         std::int64_t{65536},
      std::string("ahead:1"), std::string("ahead:2"),   std::string("window:0"), std::string("window:7000"),
      std::string("rate:0"),  std::string("rate:20000")};
  const auto with = [](V values, std::initializer_list<const char*> more) {
    for (const char* word : more) values.emplace_back(std::string(word));
    return values;
  };
  const V microseconds = numbers({0, 0.5, 20});
  const V rates = with(numbers({0.001, 1, 10}), {"none", "none"});  // at more a step of so small a model takes no time
  static const std::map<std::string, V> values{
      {"model.preset", words({"quickstart"})},
      {"fsdp.state_dtype", words({"fp32", "fp32", "fp32", "fp32", "bf16"})},
      {"model.layers", ints({1, 2, 3, 5})},
      {"model.width", ints({8, 24, 32})},
      {"model.heads", ints({1, 2, 4})},
      {"model.kv_heads", ints({1, 2, 4})},
      {"model.ffn_width", ints({1, 16, 37, 40})},
      {"model.vocab", ints({256, 257, 300, 512})},
      {"model.rope_theta", numbers({1e-3, 10000, 1e12})},
      {"model.norm_epsilon", numbers({1e-30, 1e-5, 1})},
      {"model.in_features", ints({1, 7, 64})},
      {"model.out_features", ints({1, 3, 32})},
      {"model.head_dim", ints({0, 0, 8, 16})},
      {"model.learned_positions", ints({0, 0, 64})},
      {"model.attention_window", ints({0, 0, 1, 5})},
      {"model.full_attention_every", ints({0, 1, 2})},
      {"model.experts", ints({0, 0, 4})},
      {"model.shared_experts", ints({0, 0, 1, 2})},
      {"model.active_experts", ints({0, 0, 1, 4})},
      {"model.trainable", words({"all", "all", "blocks:0-0", "blocks:1-1", "blocks:0-2"})},
      {"model.lora_rank", ints({0, 0, 2})},
      {"model.lora_alpha", numbers({1e-3, 16})},
      {"mesh.ranks", ints({1, 2, 3, 4, 4, 6, 8, 12})},
      {"mesh.shard", ints({0, 0, 1, 2, 4})},
      {"mesh.replicate", ints({0, 0, 1, 2})},
      {"mesh.tensor", ints({1, 1, 2, 4})},
      {"mesh.context", ints({1, 1, 1, 2, 4})},
      {"mesh.expert", ints({1, 1, 1, 2})},
      {"mesh.expert_imbalance", numbers({1, 1, 1.5})},
      {"train.steps", ints({1, 2, 3})},
      {"train.warmup", ints({0, 1, 2})},
      {"train.seq_len", ints({1, 2, 5, 8, 16})},
      {"train.batch_per_rank", ints({1, 2, 3})},
      {"train.batch_global", ints({0, 0, 8, 24})},
      {"train.accumulate", ints({1, 2, 3})},
      {"train.seed", ints({0, 1, INT64_MAX})},
      {"train.learning_rate", numbers({1e-30, 1e-3, 0.1})},
      {"train.beta1", numbers({0, 0.9})},
      {"train.beta2", numbers({0, 0.999})},
      {"train.epsilon", numbers({1e-30, 1e-8, 1})},
      {"train.weight_decay", numbers({0, 0.01})},
      {"train.clip_norm", numbers({0, 1e-30, 1, 1e38})},
      {"fsdp.reshard_after_forward", V{std::string("auto"), true, false, std::int64_t{1}, std::int64_t{2}}},
      {"fsdp.forward_prefetch", with(prefetched, {"implicit"})},
      {"fsdp.backward_prefetch", with(prefetched, {"post", "pre"})},
      {"fsdp.all_gather_limit",
       with(ints({1, 2, 65536}), {"unlimited", "fsdp1_queue:1", "fsdp1_queue:1024", "fsdp2_event", "bytes:1",
                                  "bytes:64KiB", "buffers:1", "buffers:3", "fetched:1", "fetched:4"})},
      {"fsdp.reduce_scatter_buffers", ints({0, 1, 2, 65536})},
      {"fsdp.wrap", words({"block", "blocks:2", "blocks:65536", "size:1", "size:9000", "model"})},
      {"fsdp.checkpoint_every", ints({1, 2, 4096})},
      {"fsdp.recompute_share", numbers({1, 1, 0.5, 0.001})},
      {"fsdp.shard_threshold", elements},
      {"fsdp.max_live_parameters", elements},
      {"fsdp.max_reuse_distance", elements},
      {"fsdp.persistence_threshold", elements},
      {"fsdp.reduce_bucket", elements},
      {"fsdp.reduce_scatter_elements", elements},
      {"fsdp.reduce_lag", ints({0, 1, 2, 65536})},
      {"fsdp.reductions_in_flight", ints({0, 1, 2, 65536})},
      {"fsdp.gradient_divide_factor", numbers({0, 1, 3, 1e6})},
      {"nccl.max_ctas", ints({0, 1, 64})},
      {"nccl.timeout_s", numbers({1, 60})},
      {"emulate.link_gb_per_s", rates},
      {"emulate.compute_tflops", rates},
      {"emulate.pcie_gb_per_s", rates},
      {"emulate.link_latency_us", microseconds},
      {"emulate.pcie_latency_us", microseconds},
      {"simulate.cluster", words({"", "", "dgx-h100", "cpu-2core", "ethernet-a100", "gb200-nvl72"})},
      {"simulate.efficiency", numbers({1e-3, 0.8, 1})},
      {"simulate.host_issue_us", microseconds},
      {"simulate.launch_us", microseconds},
      {"simulate.wake_us", microseconds},
      {"simulate.jitter_pct", numbers({0, 5, 100})},
      {"simulate.rank_jitter_pct", numbers({0, 5, 100})},
      {"simulate.pause_chance", numbers({0, 0.01, 0.5})},
      {"simulate.pause_us", microseconds},
      {"simulate.seed", ints({0, 1, std::int64_t{1} << 53})},
      {"inject.slow_rank", ints({-1, 0, 1})},
      {"inject.slow_link_rank", ints({-1, 0, 1})},
      {"inject.delay_rank", ints({-1, 0, 1})},
      {"inject.slow_rank_factor", numbers({1, 1.5, 3})},
      {"inject.slow_link_factor", numbers({1, 1.5, 3})},
      {"inject.jitter_us", microseconds},
      {"inject.host_sync_after_layer", ints({-1, 0, 1})},
      {"inject.host_delay_us", microseconds},
      {"inject.delay_us", microseconds},
      {"trace.ranks", ints({0, 1, 2, 100})},
      {"checkpoint.every", ints({0, 1, 2})},
      {"checkpoint.keep", ints({1, 2})},
  };
  return values;
}

/// Values that a key may be drawn as: never empty, and every value is one that the key takes.
inline std::vector<config::Value> values_of(const config::Field& field) {
  std::vector<config::Value> asked;
  const config::Value given = field.write(config::RunConfig());
  if (const auto chosen = chosen_values().find(field.name()); chosen != chosen_values().end()) {
    asked = chosen->second;
  } else if (std::holds_alternative<bool>(given)) {
    asked = {false, true};
  } else {
    for (std::size_t at = field.valid.find('"'); at != std::string::npos;) {  // the words that it quotes
      const std::size_t end = field.valid.find('"', at + 1);
      if (end == std::string::npos) break;
      asked.emplace_back(field.valid.substr(at + 1, end - at - 1));
      at = field.valid.find('"', end + 1);
    }
  }
  std::erase_if(asked, [&](const config::Value& value) {
    config::RunConfig scratch;
    return !field.read(scratch, value);
  });
  if (asked.empty()) asked.push_back(given);
  return asked;
}

/// Draws configurations over the table of all keys. Two keys of each case are a pair out of all pairs in turn, so that
/// as many cases as there are pairs ask for each; further keys are drawn at random. Not all are valid.
class RandomKeys {
 public:
  RandomKeys() {
    for (const config::Field& field : config::fields()) values_.push_back(values_of(field));
  }
  std::size_t keys() const { return values_.size(); }
  const std::vector<config::Value>& values(std::size_t key) const { return values_[key]; }

  struct Draw {
    config::RunConfig config;
    std::vector<std::size_t> keys;  ///< that were drawn, into config::fields(), sorted
  };

  /// `base` with the pair of case `number` and `others` more keys.
  Draw draw(std::uint64_t number, int others, std::mt19937_64& random, config::RunConfig base) const {
    const std::uint64_t n = keys(), pair = number * 7919 % (n * n);
    std::vector<std::size_t> drawn;
    for (int i = 0; i < others; ++i) drawn.push_back(random() % n);
    drawn.push_back(pair / n);
    drawn.push_back(pair % n);
    Draw result{std::move(base), {}};
    // A preset is what the keys of its table are before any of them is set.
    for (const std::size_t key : drawn) {
      if (config::fields()[key].name() != "fsdp.preset") continue;
      const config::Value& value = values_[key][random() % values_[key].size()];
      result.config.fsdp.preset = std::get<std::string>(value);
      for (const auto& [name, given] : config::fsdp_preset(result.config.fsdp.preset)) {
        config::find_field(name)->read(result.config, given);
      }
    }
    for (const std::size_t key : drawn) {
      const config::Field& field = config::fields()[key];
      if (field.name() == "fsdp.preset") continue;
      field.read(result.config, values_[key][random() % values_[key].size()]);
    }
    std::ranges::sort(drawn);
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
    result.keys = std::move(drawn);
    return result;
  }

 private:
  std::vector<std::vector<config::Value>> values_;
};

}  // namespace fsdpbench::testing
