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
Setting number(const char* key, std::int64_t value) { return {key, value}; }
Setting flag(const char* key, bool value) { return {key, value}; }

/// What the engines do unless told otherwise; docs/engines.md says where each line comes from.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> kPresets{
      {"fsdp1",
       {text("fsdp.layout", "flat"), flag("fsdp.learn_execution_order", true),
        text("fsdp.all_gather_limit", "fsdp1_queue:2"), number("fsdp.reduce_scatter_buffers", 0),
        text("fsdp.gradient_scaling", "pre_post_divide"), flag("fsdp.keep_unreduced", true),
        flag("fsdp.gradients_after_views", true)}},
      {"fsdp2", {}},
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
          number("fsdp.reduce_scatter_buffers", 1),
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
  std::vector<Setting> all = fsdp2();
  for (const Setting& setting : found->settings) {
    const auto same = std::ranges::find(all, setting.first, &Setting::first);
    if (same == all.end()) {
      all.push_back(setting);
    } else {
      same->second = setting.second;
    }
  }
  return all;
}

}  // namespace fsdpbench::config
