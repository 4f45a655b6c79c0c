#include "config/presets.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "config/words/words.h"

namespace fsdpbench::config {

const std::vector<std::string>& fsdp_preset_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const dialects::Words* words : dialects::all_words()) {
      for (const dialects::Preset& preset : words->presets) names.emplace_back(preset.name);
    }
    return names;
  }();
  return kNames;
}

std::vector<std::pair<std::string, Value>> fsdp_preset(std::string_view name) {
  const dialects::Preset* preset = dialects::find_preset(name);
  if (preset == nullptr) return {};
  std::vector<std::pair<std::string, Value>> settings = fsdp_preset(preset->like);
  for (const auto& [key, value] : preset->settings) {
    const auto same = std::ranges::find(settings, key, &std::pair<std::string, Value>::first);
    if (same == settings.end()) {
      settings.emplace_back(key, value);
    } else {
      same->second = value;
    }
  }
  return settings;
}

dialects::HostTimes host_times(const RunConfig& config) {
  if (config.simulate.host == Simulate::Host::own) return dialects::host_times(std::vector<std::string_view>{"own"});
  std::vector<std::string_view> engines;
  if (config.simulate.framework == Simulate::Framework::nanotron) engines.emplace_back("nanotron");
  const bool replicates = config.fsdp.strategy == Strategy::no_shard && config.mesh.ranks > 1;
  if (replicates) engines.emplace_back("ddp");
  const dialects::Preset* preset = replicates ? nullptr : dialects::find_preset(config.fsdp.preset);
  for (; preset != nullptr; preset = dialects::find_preset(preset->like)) engines.emplace_back(preset->name);
  engines.emplace_back("eager");
  std::ranges::reverse(engines);
  return dialects::host_times(engines);
}

}  // namespace fsdpbench::config
