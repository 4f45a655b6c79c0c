// veScale: FSDP2's order without its copies; parts are padded to common multiples.
#include <array>

#include "dialects/words/words.h"

namespace fsdpbench::dialects {

const Words& vescale_words() {
  static constexpr auto kDefaults = std::to_array<Setting>({{"fsdp.layout", "flat"}, {"fsdp.unit_padding_pct", 3.0}});
  static constexpr auto kPresets = std::to_array<Preset>({{"vescale", "fsdp2", kDefaults}});
  static const Words kWords{.name = "vescale", .presets = kPresets};
  return kWords;
}

}  // namespace fsdpbench::dialects
