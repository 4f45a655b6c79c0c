#include "config/presets.h"

#include <algorithm>

namespace fsdpbench::config {
namespace {

using Setting = std::pair<std::string, Value>;

struct Preset {
  std::string name;
  std::vector<Setting> settings;  ///< where it differs from fsdp2
};

Setting text(const char* key, const char* value) { return {key, std::string(value)}; }
Setting whole_number(const char* key, std::int64_t value) { return {key, value}; }
Setting flag(const char* key, bool value) { return {key, value}; }

constexpr std::int64_t kAll = std::int64_t{1} << 60;            // elements: more than any unit has
constexpr std::int64_t kAfterBackward = std::int64_t{1} << 16;  // units: more than any model has

std::vector<Setting> deepspeed_z3() {
  return {text("fsdp.layout", "flat"),
          flag("fsdp.reshard_after_forward", true),
          text("fsdp.forward_prefetch", "rate:50000000"),
          text("fsdp.backward_prefetch", "rate:50000000"),
          flag("fsdp.learn_execution_order", true),
          text("fsdp.all_gather_limit", "fetched:2"),
          whole_number("fsdp.max_live_parameters", 1'000'000'000),
          whole_number("fsdp.max_reuse_distance", 1'000'000'000),
          whole_number("fsdp.persistence_threshold", 100'000),
          whole_number("fsdp.reduce_bucket", 500'000'000),
          whole_number("fsdp.reductions_in_flight", 2),
          whole_number("fsdp.reduce_scatter_buffers", 0)};
}

/// `settings` with `changes` in place of those of the same keys, or after them.
std::vector<Setting> with(std::vector<Setting> settings, const std::vector<Setting>& changes) {
  for (const Setting& change : changes) {
    const auto same = std::ranges::find(settings, change.first, &Setting::first);
    if (same == settings.end()) {
      settings.push_back(change);
    } else {
      same->second = change.second;
    }
  }
  return settings;
}

std::vector<Setting> deepspeed_z3_hpz() {
  return with(deepspeed_z3(), {whole_number("fsdp.reshard_after_forward", 8),
                               flag("fsdp.host_sync_at_group_shard", true), flag("fsdp.keep_group_shard", true)});
}

/// A scan over layers with rematerialisation: one collective in flight, reductions one iteration late.
std::vector<Setting> xla() {
  return {text("fsdp.layout", "flat"),
          text("fsdp.forward_prefetch", "none"),
          text("fsdp.backward_prefetch", "none"),
          text("fsdp.all_gather_limit", "unlimited"),
          flag("fsdp.gathers_follow_compute", true),
          text("fsdp.reduce_lane", "all_gather"),
          whole_number("fsdp.reduce_lag", 1),
          flag("fsdp.activation_checkpointing", true)};
}

/// What the engines do unless told otherwise; docs/engines.md says where each line comes from.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> kPresets{
      {"fsdp1",
       {text("fsdp.layout", "flat"), flag("fsdp.learn_execution_order", true),
        text("fsdp.all_gather_limit", "fsdp1_queue:2"), whole_number("fsdp.reduce_scatter_buffers", 0),
        text("fsdp.gradient_scaling", "pre_post_divide"), flag("fsdp.keep_unreduced", true),
        flag("fsdp.gradients_after_views", true)}},
      {"fsdp2", {}},
      {"deepspeed-z1",
       {text("fsdp.strategy", "shard_grad_op"), text("fsdp.layout", "flat"),
        whole_number("fsdp.persistence_threshold", kAll), whole_number("fsdp.reduce_bucket", 500'000'000),
        text("fsdp.reduce_by", "all_reduce"), text("fsdp.reduce_lane", "compute"),
        whole_number("fsdp.reduce_lag", kAfterBackward), whole_number("fsdp.reduce_scatter_buffers", 0),
        text("train.accumulate_mode", "no_sync")}},
      {"deepspeed-z2",
       {text("fsdp.strategy", "shard_grad_op"), text("fsdp.layout", "flat"),
        whole_number("fsdp.persistence_threshold", kAll), whole_number("fsdp.reduce_bucket", 500'000'000),
        text("fsdp.reduce_by", "all_reduce"), text("fsdp.reduce_lane", "compute"),
        whole_number("fsdp.reduce_scatter_buffers", 0)}},
      {"deepspeed-z3", deepspeed_z3()},
      {"deepspeed-z3-hpz", deepspeed_z3_hpz()},
      {"deepspeed-zeropp", with(deepspeed_z3_hpz(), {text("fsdp.gather_quantization", "int8:8000"),
                                                     text("fsdp.reduce_quantization", "int4:2048"),
                                                     whole_number("fsdp.reduce_within", 8)})},
      {"megatron-v1",
       {text("fsdp.layout", "flat"), text("fsdp.forward_prefetch", "window:500000000"),
        text("fsdp.backward_prefetch", "window:500000000"), text("fsdp.all_gather_limit", "unlimited"),
        flag("fsdp.gathers_ascend", true), flag("fsdp.gathers_follow_compute", true),
        flag("fsdp.root_prefetches_backward", false), whole_number("fsdp.reduce_scatter_elements", 1'000'000'000)}},
      {"megatron-v2",
       {text("fsdp.layout", "flat"), flag("fsdp.reshard_after_forward", true),
        text("fsdp.forward_prefetch", "explicit:1"), text("fsdp.backward_prefetch", "explicit:1"),
        text("fsdp.all_gather_limit", "unlimited"), text("fsdp.free_lane", "all_gather"),
        flag("fsdp.gradient_copy_in", true)}},
      {"simplefsdp",
       {text("fsdp.forward_prefetch", "ahead:1"), text("fsdp.backward_prefetch", "ahead:1"),
        text("fsdp.all_gather_limit", "unlimited"), flag("fsdp.gathers_follow_compute", true),
        whole_number("fsdp.reduce_scatter_buffers", 2), flag("fsdp.head_unit", true)}},
      {"vescale", {text("fsdp.layout", "flat"), Setting{"fsdp.unit_padding_pct", 3.0}}},
      {"xla", xla()},
      {"xla-pipelined",
       with(xla(), {text("fsdp.forward_prefetch", "explicit:1"), text("fsdp.backward_prefetch", "explicit:1")})},
  };
  return kPresets;
}

/// PyTorch's fully_shard: gathers in order of use, prefetches one unit in backward. The defaults of Fsdp.
std::vector<Setting> fsdp2() {
  return {text("fsdp.layout", "per_param"),
          text("fsdp.forward_prefetch", "implicit"),
          flag("fsdp.learn_execution_order", false),
          text("fsdp.backward_prefetch", "pre"),
          text("fsdp.all_gather_limit", "fsdp2_event"),
          whole_number("fsdp.reduce_scatter_buffers", 1),
          text("fsdp.gradient_scaling", "average"),
          flag("fsdp.keep_unreduced", false),
          flag("fsdp.gradients_after_views", false)};
}

}  // namespace

const std::vector<std::string>& fsdp_preset_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) names.push_back(preset.name);
    return names;
  }();
  return kNames;
}

std::vector<Setting> fsdp_preset(std::string_view name) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found == presets().end()) return {};
  return with(fsdp2(), found->settings);
}

}  // namespace fsdpbench::config
