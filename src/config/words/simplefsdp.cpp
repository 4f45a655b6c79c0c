// SimpleFSDP: torchtitan's graph trainer, ordered by a compiler's pass.
#include <array>

#include "config/words/words.h"

namespace fsdpbench::dialects {

const Words& simplefsdp_words() {
  static constexpr auto kDefaults = std::to_array<Setting>({
      {"fsdp.forward_prefetch", "ahead:1"},
      {"fsdp.backward_prefetch", "ahead:1"},
      {"fsdp.all_gather_limit", "unlimited"},
      {"fsdp.gathers_follow_compute", true},
      {"fsdp.reduce_scatter_buffers", std::int64_t{2}},
      {"fsdp.head_unit", true},
  });
  static constexpr auto kPresets = std::to_array<Preset>({{"simplefsdp", "fsdp2", kDefaults}});
  // Whatever torch.compile made has these.
  static constexpr auto kParts = std::to_array<std::string_view>({"CompiledFxGraph", "_c10d_functional::"});
  static constexpr auto kMeant = std::to_array<std::string_view>({"simplefsdp", "xla", "xla-pipelined"});
  static const Words kWords{
      .name = "simplefsdp",
      .presets = kPresets,
      .traces = {.parts = kParts, .program = {.sharded = "compiled FSDP (SimpleFSDP)"}, .presets = kMeant}};
  return kWords;
}

}  // namespace fsdpbench::dialects
