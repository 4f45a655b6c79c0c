#include "foreign/kernel_times.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

#include "base/intervals.h"
#include "dialects/words/fsdpbench.h"
#include "foreign/host_words.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;

bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

KernelKind kind_of_own(std::string_view op) {
  if (op == "optimizer" || op == "gradient_norm" || op == "clip") return KernelKind::optimizer;
  if (op == "finish_gradient" || op == "accumulate_gradients" || op == "quantize" || op == "dequantize") {
    return KernelKind::elementwise;
  }
  // A whole module's products, attention and the rest are one row.
  return op == "forward" || op == "backward" || op == "recompute" ? KernelKind::other : KernelKind::copies;
}

/// Words of one kind are parts of others' names: kernels of attention name the products' library, products' their own
/// copies, and copies are elementwise kernels.
KernelKind kind_of_name(std::string_view name) {
  if (const auto own = dialects::own_name(name)) return kind_of_own(own->op);
  std::string word(name);
  std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  if (has_any(word, {"flash", "fmha", "attn", "attention", "sdpa"})) return KernelKind::attention;
  if (has_any(word, {"adam", "adagrad", "fusedsgd", "fused_sgd", "lpnormfunctor"})) return KernelKind::optimizer;
  if (is_matrix_product(name) || has_any(word, {"gemv", "splitk", "xmma", "convolution", "conv2d", "conv1d", "cudnn",
                                                "dgrad", "wgrad", "winograd", "matmul", "triton_tem_"})) {
    return KernelKind::products;
  }
  const bool fused = word.starts_with("triton_");  // names what was fused, of which a cast is a small part
  if (!fused && (is_layout_copy(name) || has_any(word, {"copy", "catarray", "chunk_cat", "memcpy", "memset"}))) {
    return KernelKind::copies;
  }
  if (fused || has_any(word, {"elementwise", "norm", "softmax", "reduce_kernel", "reduction", "silu", "gelu", "relu",
                              "dropout", "rotary", "rope", "embedding", "index", "cross_entropy", "nll_loss",
                              "at::native::", "aten::", "multi_tensor_apply", "quant"})) {
    return KernelKind::elementwise;
  }
  return KernelKind::other;
}

}  // namespace

std::string_view to_string(KernelKind kind) {
  static constexpr EnumNames<KernelKind> kNames{"products", "attention",     "elementwise", "optimizer",
                                                "copies",   "communication", "other"};
  return kNames[kind];
}

KernelKind kernel_kind(Activity activity, std::string_view name, std::optional<Phase> phase) {
  switch (activity) {
    case Activity::collective: return KernelKind::communication;
    case Activity::copy:
    case Activity::fill: return KernelKind::copies;
    case Activity::computation: break;
  }
  const KernelKind kind = kind_of_name(name);
  const bool may_be = kind != KernelKind::copies;  // a copy is one wherever it is launched
  return phase == Phase::optimizer && may_be ? KernelKind::optimizer : kind;
}

KernelTimes find_kernel_times(const JobTrace& job, const Recognition& found) {
  KernelTimes times;
  EnumTable<KernelKind, KernelSum> kinds;
  std::map<std::pair<KernelKind, std::string_view>, KernelSum> kernels;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankRows& rank = job.ranks[r];
    const HostWords words(rank);
    // By kind and name, which are numbers of the rank: there are fewer of them than rows.
    std::map<std::pair<Activity, std::int32_t>, KernelKind> by_name;
    std::map<std::pair<KernelKind, std::int32_t>, KernelSum> sums;
    for (const JobStep& step : found.ranks[r].cut.steps) {
      for (const std::int32_t index : step.device) {
        const DeviceRow& row = rank.device[static_cast<std::size_t>(index)];
        KernelKind kind{};
        if (words.phase(row.launch) == Phase::optimizer) {
          kind = kernel_kind(row.kind, rank.names[static_cast<std::size_t>(row.name)], Phase::optimizer);
        } else {
          const auto [known, fresh] = by_name.try_emplace({row.kind, row.name}, KernelKind::other);
          if (fresh) {
            known->second = kernel_kind(row.kind, rank.names[static_cast<std::size_t>(row.name)], std::nullopt);
          }
          kind = known->second;
        }
        KernelSum& sum = sums[{kind, row.name}];
        ++sum.launches;
        sum.ns += row.end_ns - row.begin_ns;
      }
    }
    for (const auto& [key, sum] : sums) {
      const std::string_view name = rank.names[static_cast<std::size_t>(key.second)];
      for (KernelSum* into : {&kinds[key.first], &kernels[{key.first, name}]}) {
        into->kind = key.first;
        into->launches += sum.launches;
        into->ns += sum.ns;
      }
      times.ns += sum.ns;
    }
  }
  for (const KernelKind kind : kEnumerators<KernelKind>) {
    if (kinds[kind].launches > 0) times.by_kind.push_back(kinds[kind]);
  }
  std::ranges::stable_sort(times.by_kind, std::greater<>(), &KernelSum::ns);
  for (auto& [key, sum] : kernels) {
    sum.name = key.second;
    times.top.push_back(std::move(sum));
  }
  std::ranges::stable_sort(times.top, std::greater<>(), &KernelSum::ns);
  if (times.top.size() > kMostKernels) times.top.resize(kMostKernels);
  return times;
}

// [Note: as HolisticTraceAnalysis counts]
// Its Trace class keeps the kernels of launches before the last ProfilerStep#N begins, if the files of all ranks have
// two of such names or more; otherwise it keeps all. Its kinds are regular expressions on names, matched at their
// beginning: CommunicateKernelGroupingPattern and ComputeKernelGroupingPattern.
std::optional<double> overlap_by_hta(const JobTrace& job, const RankRows& rank) {
  if (rank.computes_on_host()) return std::nullopt;
  std::set<std::int64_t> numbers;
  for (const RankRows& any : job.ranks) {
    for (const StepMark& step : any.steps) numbers.insert(step.number);
  }
  std::optional<std::int64_t> last_began;
  if (numbers.size() > 1) {
    if (rank.steps.empty()) return std::nullopt;
    last_began = std::ranges::max_element(rank.steps, {}, &StepMark::begin_ns)->begin_ns;
  }
  enum class Kind : std::uint8_t { unknown, communication, computation, neither };
  std::vector<Kind> kinds(rank.names.size(), Kind::unknown);
  const auto kind_of = [](std::string_view name) {
    const auto begins = [&](std::string_view word) { return name.starts_with(word); };
    if (begins("nccl") || begins("hip") || begins("hccl") || has_any(name, {"ncclKernel"})) return Kind::communication;
    return has_any(name, {"Memcpy", "Memset", "dma", "Sync"}) ? Kind::neither : Kind::computation;
  };
  IntervalSet computation, communication;
  for (const DeviceRow& row : rank.device) {
    if (row.kind == Activity::copy || row.kind == Activity::fill) continue;
    if (last_began && (row.launch < 0 || rank.host[static_cast<std::size_t>(row.launch)].begin_ns >= *last_began)) {
      continue;
    }
    Kind& kind = kinds[static_cast<std::size_t>(row.name)];
    if (kind == Kind::unknown) kind = kind_of(rank.names[static_cast<std::size_t>(row.name)]);
    if (kind == Kind::communication) communication.push_back({row.begin_ns, row.end_ns});
    if (kind == Kind::computation) computation.push_back({row.begin_ns, row.end_ns});
  }
  computation = unite(std::move(computation));
  communication = unite(std::move(communication));
  if (communication.empty()) return std::nullopt;
  return 100.0 * static_cast<double>(length(intersect(computation, communication))) /
         static_cast<double>(length(communication));
}

}  // namespace fsdpbench::foreign
