#include "config/words/words.h"

#include <algorithm>
#include <array>

namespace fsdpbench::dialects {

std::span<const Words* const> all_words() {
  static const std::array kAll{&pytorch_fsdp1_words(), &pytorch_fsdp2_words(), &pytorch_ddp_words(),
                               &deepspeed_words(),     &megatron_fsdp_words(), &simplefsdp_words(),
                               &maxtext_words(),       &torchtitan_words(),    &accelerate_words(),
                               &hf_trainer_words(),    &fsdpbench_words(),     &common_words()};
  return kAll;
}

std::span<const Words* const> words_in_traces() {
  static const std::array kTraced{&pytorch_fsdp2_words(), &pytorch_fsdp1_words(), &pytorch_ddp_words(),
                                  &deepspeed_words(),     &megatron_fsdp_words(), &simplefsdp_words(),
                                  &maxtext_words(),       &fsdpbench_words()};
  return kTraced;
}

const Preset* find_preset(std::string_view name) {
  for (const Words* words : all_words()) {
    const auto found = std::ranges::find(words->presets, name, &Preset::name);
    if (found != words->presets.end()) return &*found;
  }
  return nullptr;
}

const Words* words_of_preset(std::string_view preset) {
  const auto has = [&](const Words* words) { return std::ranges::count(words->presets, preset, &Preset::name) > 0; };
  const auto found = std::ranges::find_if(all_words(), has);
  return found == all_words().end() ? nullptr : *found;
}

std::span<const std::string_view> likely_presets(bool layout_copies) {
  static constexpr auto kCopying =
      std::to_array<std::string_view>({"fsdp2", "simplefsdp", "fsdp1", "megatron-v2", "deepspeed-z3"});
  static constexpr auto kAny =
      std::to_array<std::string_view>({"fsdp1", "fsdp2", "megatron-v2", "megatron-v1", "deepspeed-z3", "simplefsdp",
                                       "deepspeed-z3-hpz", "xla", "xla-pipelined", "deepspeed-zeropp"});
  return layout_copies ? std::span<const std::string_view>(kCopying) : kAny;
}

}  // namespace fsdpbench::dialects
