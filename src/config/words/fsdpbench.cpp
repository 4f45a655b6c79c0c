// This program's own names: in traces that it wrote, and as keys where a system has no words of its own.
#include "config/words/fsdpbench.h"

#include <algorithm>
#include <array>

#include "config/words/words.h"

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
  static constexpr std::array<std::string_view, 23> kOps{"all_gather",      "reduce_scatter", "all_reduce",
                                                         "all_to_all",      "gather_norm",    "forward",
                                                         "recompute",       "backward",       "optimizer",
                                                         "copy_in",         "copy_out",       "cast_shard",
                                                         "reduce_copy_in",  "reduce_cast",    "quantize",
                                                         "dequantize",      "load_batch",     "gradient_norm",
                                                         "finish_gradient", "clip",           "accumulate_gradients",
                                                         "host_to_device",  "device_to_host"};
  if (std::ranges::find(kOps, own.op) == kOps.end()) return std::nullopt;
  if (blank != std::string_view::npos) own.unit = name.substr(blank + 1);
  if (own.unit.ends_with('*')) {
    own.prefetch = true;
    own.unit.remove_suffix(1);
  }
  return own;
}

const Words& fsdpbench_words() {
  static constexpr auto kCopies = std::to_array<std::string_view>({"(copy_out"});
  static const Words kWords{.name = "fsdpbench",
                            .traces = {.program = {.sharded = "fsdpbench"}, .layout_copies = kCopies},
                            .remedies = Remedies{.prefetch_forward = "fsdp.forward_prefetch=explicit:2",
                                                 .prefetch_backward = "fsdp.backward_prefetch=explicit:2",
                                                 .no_limit = "fsdp.all_gather_limit=unlimited",
                                                 .separate_reductions = "fsdp.separate_reduce_scatter_comm=true",
                                                 .accumulate = "train.accumulate",
                                                 .keep_after_forward = "fsdp.reshard_after_forward=auto",
                                                 .keep_after_backward = "fsdp.reshard_after_backward=false",
                                                 .prefetch_less = "fewer units ahead: fsdp.forward_prefetch, "
                                                                  "fsdp.backward_prefetch",
                                                 .no_reentrant = "fsdp.checkpoint_reentrant=false"}};
  return kWords;
}

}  // namespace fsdpbench::dialects
