#include "foreign/checkpointing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "config/words/fsdpbench.h"
#include "foreign/collective_use.h"
#include "foreign/kineto_names.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;

/// Functions whose derivative is another function, by words of their kernels: where one runs in backward, a forward
/// runs again. Sums and products of elements run in both anyway.
bool is_of_forward_alone(std::string_view name) {
  std::string word(name);
  std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  const auto has = [&](std::string_view part) { return word.find(part) != std::string::npos; };
  static constexpr std::string_view kFunctions[] = {"gelu",      "silu",    "layer_norm", "layernorm",
                                                    "rms_norm",  "rmsnorm", "softmax",    "attention",
                                                    "flash_fwd", "fmha",    "fprop"};
  return std::ranges::any_of(kFunctions, has) && !has("backward") && !has("bwd") && !has("bprop") && !has("grad");
}

}  // namespace

std::optional<Finding> find_checkpointing(const RankRows& rank, const HostWords& words, const JobStep& step,
                                          int compute_stream, int passes) {
  struct Launches {
    int forward = 0, backward = 0;
  };
  std::map<std::int32_t, Launches> by_name;
  int recomputed = 0, own_forward = 0, in_backward = 0;
  for (const std::int32_t index : step.device) {
    const DeviceRow& row = rank.device[index];
    if (row.kind != Activity::computation || row.stream != compute_stream) continue;
    const std::string& name = rank.names[row.name];
    if (const auto own = dialects::own_name(name)) {
      recomputed += own->op == "recompute";
      own_forward += own->op == "forward";
      continue;
    }
    const auto phase = words.phase(row.launch);
    in_backward += phase == Phase::backward;
    const KernelKind kind = kernel_kind(row.kind, name, phase);
    if (kind != KernelKind::attention && kind != KernelKind::elementwise) continue;
    ++(phase == Phase::backward ? by_name[row.name].backward : by_name[row.name].forward);
  }
  if (own_forward > 0) {
    return Finding{"activation checkpointing", recomputed > 0 ? "true" : "false",
                   fmt::format("{} forwards run again in backward", recomputed), 0.99};
  }
  if (in_backward == 0) return std::nullopt;
  struct Counted {
    int names = 0, again = 0;
  } telling, all, attending;
  for (const auto& [name, launches] : by_name) {
    if (launches.forward < std::max(2, passes)) continue;  // not of each block
    const int again = launches.backward * 2 >= launches.forward;
    ++all.names;
    all.again += again;
    if (!is_of_forward_alone(rank.names[name])) continue;
    ++telling.names;
    telling.again += again;
    if (kernel_kind(Activity::computation, rank.names[name], std::nullopt) == KernelKind::attention) {
      ++attending.names;
      attending.again += again;
    }
  }
  // The most expensive results are kept, and all else runs again.
  if (attending.names > 0 && attending.again == 0 && telling.again > 1 &&
      telling.again + attending.names == telling.names) {
    return Finding{
        "activation checkpointing", "selective",
        fmt::format("{} functions of each block's forward run in backward, too, attention does not", telling.again),
        0.9};
  }
  constexpr int kFewest = 3;
  const bool tells = telling.names > 0;
  const Counted& counted = tells ? telling : all;
  if (!tells && (all.names < kFewest || (all.again < all.names && all.again * 4 > all.names * 3))) return std::nullopt;
  if (tells && telling.again > 0 && telling.again < telling.names) return std::nullopt;  // some of each block
  const bool checkpoints = counted.again == counted.names;
  return Finding{"activation checkpointing", checkpoints ? "true" : "false",
                 fmt::format("{} of {} {} of each block's forward run in backward, too", counted.again, counted.names,
                             tells ? "functions" : "kernels"),
                 tells         ? 0.95
                 : checkpoints ? 0.9
                               : 0.8};
}

}  // namespace fsdpbench::foreign
