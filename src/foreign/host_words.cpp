#include "foreign/host_words.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "config/words/words.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;

constexpr std::int8_t kNoPhase = -1;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return contains(text, part); });
}

/// "backward", "Backward0", "BACKWARD": names differ in their capitals.
std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return result;
}

/// "MmBackward0", "_post_backward_hook", "FSDP::backward_prefetch"; but "PreBackwardFunctionForModule" is a function of
/// autograd's that runs in forward, whose node in backward is called "PreBackwardFunctionForModuleBackward".
bool is_backward_word(std::string_view name) {
  if (contains(name, "backward")) return true;
  for (auto at = name.find("Backward"); at != std::string_view::npos; at = name.find("Backward", at + 1)) {
    const auto after = at + std::string_view("Backward").size();
    if (after == name.size() || name[after] < 'A' || (name[after] > 'Z' && name[after] < 'a')) return true;
  }
  return false;
}

std::int8_t phase_word(std::string_view name) {
  const std::string word = lower(name);
  // "Optimizer.step#AdamW.step", "Optimizer.zero_grad#…"; the norm of gradients belongs to it.
  if (contains_any(word, {"optimizer.step", "optimizer.zero_grad", "clip_grad_norm", "optimizer_step"})) {
    return static_cast<std::int8_t>(Phase::optimizer);
  }
  if (is_backward_word(name) || contains_any(word, {"autograd::engine", "accumulategrad"})) {
    return static_cast<std::int8_t>(Phase::backward);
  }
  if (contains_any(word, {"forward", "nn.module: "})) return static_cast<std::int8_t>(Phase::forward);
  // DualPipe's ranges: "attn(F)", "combine(B)", and "mlp(W)" for gradients of weights.
  if (name.ends_with("(F)")) return static_cast<std::int8_t>(Phase::forward);
  if (name.ends_with("(B)") || name.ends_with("(W)")) return static_cast<std::int8_t>(Phase::backward);
  return kNoPhase;
}

}  // namespace

HostWords::HostWords(const RankRows& rank) : rank_(rank), phases_(rank.host.size(), kNoPhase) {
  std::vector<std::int8_t> words;
  for (const std::string& name : rank.names) words.push_back(phase_word(name));
  // A thread of the autograd engine, which runs nothing else: all of it is backward.
  std::map<std::int32_t, bool> engine_threads;
  for (const HostRow& row : rank.host) {
    const std::string_view name = rank.names[row.name];
    if (name.starts_with("autograd::engine")) {
      engine_threads.try_emplace(row.thread, true);
      has_autograd_ = true;
    }
    if (name.starts_with("ProfilerStep") || name.starts_with("Optimizer.") ||
        words[row.name] == static_cast<std::int8_t>(Phase::optimizer)) {
      engine_threads[row.thread] = false;
    }
  }
  // A row that encloses another need not stand before it where both begin at once, so parents are asked for.
  std::vector<bool> known(rank.host.size(), false);
  std::vector<std::size_t> path;
  for (std::size_t i = 0; i < rank.host.size(); ++i) {
    path.clear();
    for (std::size_t at = i; !known[at];) {
      known[at] = true;
      path.push_back(at);
      const std::int32_t parent = rank.host[at].parent;
      if (parent < 0) break;
      at = static_cast<std::size_t>(parent);
    }
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      const HostRow& row = rank.host[*at];
      std::int8_t outer = row.parent >= 0 ? phases_[row.parent] : kNoPhase;
      if (outer == kNoPhase && row.parent < 0) {
        const auto engine = engine_threads.find(row.thread);
        if (engine != engine_threads.end() && engine->second) outer = static_cast<std::int8_t>(Phase::backward);
      }
      const std::int8_t own = words[row.name];
      const bool settled =
          outer == static_cast<std::int8_t>(Phase::backward) || outer == static_cast<std::int8_t>(Phase::optimizer);
      phases_[*at] = settled || own == kNoPhase ? outer : own;
    }
  }
}

std::optional<Phase> HostWords::phase(std::int32_t row) const {
  if (row < 0 || phases_[row] == kNoPhase) return std::nullopt;
  return static_cast<Phase>(phases_[row]);
}

std::optional<std::string> HostWords::unit(std::int32_t row) const {
  for (; row >= 0; row = rank_.host[row].parent) {
    const std::size_t name = static_cast<std::size_t>(rank_.host[row].name);
    for (const dialects::Words* words : dialects::words_in_traces()) {
      if (auto unit = words->traces.unit(rank_.names[name])) return unit;
    }
  }
  return std::nullopt;
}

bool HostWords::prefetches(std::int32_t row) const {
  return std::ranges::any_of(dialects::words_in_traces(), [&](const dialects::Words* words) {
    return !words->traces.prefetch.empty() && around(row, words->traces.prefetch) >= 0;
  });
}

std::int32_t HostWords::around(std::int32_t row, std::string_view text) const {
  for (; row >= 0; row = rank_.host[row].parent) {
    const std::size_t name = static_cast<std::size_t>(rank_.host[row].name);
    if (contains(rank_.names[name], text)) return row;
  }
  return -1;
}

bool is_layout_copy(std::string_view name) {
  return std::ranges::any_of(dialects::words_in_traces(), [&](const dialects::Words* words) {
    return std::ranges::any_of(words->traces.copies, [&](std::string_view part) { return contains(name, part); });
  });
}

bool is_matrix_product(std::string_view name) {
  const std::string word = lower(name);
  return contains_any(word, {"gemm", "cutlass", "cublas", "_mm_", "nvjet", "cijk_", "wgmma", "aten::mm", "aten::addmm",
                             "aten::bmm", "aten::linear", "triton_mm"});
}

}  // namespace fsdpbench::foreign
