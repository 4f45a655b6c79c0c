#include "config/words/fsdpbench.h"

#include <algorithm>
#include <array>

namespace fsdpbench::dialects {

std::optional<OwnName> own_name(std::string_view name) {
  for (const std::string_view prefix : {"ncclDevKernel_", "Memcpy DtoD (", "Memcpy HtoD (", "Memcpy DtoH ("}) {
    if (!name.starts_with(prefix)) continue;
    const auto open = name.find('('), close = name.rfind(')');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
    name = name.substr(open + 1, close - open - 1);
    break;
  }
  OwnName own;
  const auto blank = name.find(' ');
  own.op = name.substr(0, blank);
  static constexpr std::array<std::string_view, 20> kOps{
      "all_gather",     "reduce_scatter", "all_reduce",    "gather_norm",     "forward",    "recompute",
      "backward",       "optimizer",      "copy_in",       "copy_out",        "cast_shard", "reduce_copy_in",
      "reduce_cast",    "load_batch",     "gradient_norm", "finish_gradient", "clip",       "accumulate_gradients",
      "host_to_device", "device_to_host"};
  if (std::ranges::find(kOps, own.op) == kOps.end()) return std::nullopt;
  if (blank != std::string_view::npos) own.unit = name.substr(blank + 1);
  if (own.unit.ends_with('*')) {
    own.prefetch = true;
    own.unit.remove_suffix(1);
  }
  return own;
}

}  // namespace fsdpbench::dialects
