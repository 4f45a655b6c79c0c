// VeOmni's settings of FSDP2.
#include <array>

#include "dialects/words/words.h"

namespace fsdpbench::dialects {

const Words& veomni_words() {
  // veomni/distributed/torch_parallelize.py, August 2026: with experts split over ranks each block lists the next one
  // and its experts, in both directions. The root gets no list.
  static constexpr auto kExperts = std::to_array<Setting>({
      {"fsdp.forward_prefetch", "explicit:1"},
      {"fsdp.backward_prefetch", "explicit:1"},
      {"fsdp.root_prefetches_forward", false},
      {"fsdp.expert_unit", "module"},
  });
  static constexpr auto kPresets = std::to_array<Preset>({{"veomni", "fsdp2", kExperts}});
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"epsize", "mesh.expert"},
      {"enablereentrant", "fsdp.checkpoint_reentrant"},
  });
  static const Words kWords{.name = "veomni", .presets = kPresets, .keys = kKeys};
  return kWords;
}

}  // namespace fsdpbench::dialects
