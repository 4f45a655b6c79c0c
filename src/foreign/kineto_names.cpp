#include "foreign/kineto_names.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/enum_table.h"
#include "config/words/fsdpbench.h"
#include "foreign/host_words.h"

namespace fsdpbench::foreign {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <typename Value, std::size_t count>
using Table = std::array<std::pair<std::string_view, Value>, count>;

constexpr Table<RowKind, 15> kCategories{{{"cpu_op", RowKind::op},
                                          {"user_annotation", RowKind::annotation},
                                          {"python_function", RowKind::function},
                                          {"cuda_runtime", RowKind::call},
                                          {"cuda_driver", RowKind::call},
                                          {"hip_runtime", RowKind::call},
                                          {"xpu_runtime", RowKind::call},
                                          {"xpu_driver", RowKind::call},
                                          {"privateuse1_runtime", RowKind::call},
                                          {"kernel", RowKind::kernel},
                                          {"collective_comm", RowKind::kernel},
                                          {"gpu_memcpy", RowKind::copy},
                                          {"gpu_memset", RowKind::fill},
                                          {"cuda_sync", RowKind::wait},
                                          {"cpu_instant_event", RowKind::instant}}};

// The first that a kernel's name has; those whose words are parts of others' come later.
constexpr Table<Communication, 10> kLibraryWords{{{"AllGather", Communication::all_gather},
                                                  {"ReduceScatter", Communication::reduce_scatter},
                                                  {"AllReduce", Communication::all_reduce},
                                                  {"AllToAll", Communication::all_to_all},
                                                  {"AlltoAll", Communication::all_to_all},
                                                  {"Broadcast", Communication::broadcast},
                                                  {"Reduce", Communication::reduce},
                                                  {"Gather", Communication::gather},
                                                  {"Scatter", Communication::scatter},
                                                  {"SendRecv", Communication::other}}};

// Kernels of programs that communicate without a library: PyTorch's symmetric memory, vLLM, TensorRT-LLM, DeepEP.
constexpr Table<Communication, 13> kOwnKernels{{{"multimem_all_gather", Communication::all_gather},
                                                {"multimem_all_reduce", Communication::all_reduce},
                                                {"multimem_one_shot_all_reduce", Communication::all_reduce},
                                                {"multimem_one_shot_reduce_scatter", Communication::reduce_scatter},
                                                {"one_shot_all_reduce", Communication::all_reduce},
                                                {"two_shot_all_reduce", Communication::all_reduce},
                                                {"cross_device_reduce", Communication::all_reduce},
                                                {"allreduce_fusion_kernel", Communication::all_reduce},
                                                {"oneShotAllReduceKernel", Communication::all_reduce},
                                                {"twoShotAllReduceKernel", Communication::all_reduce},
                                                {"deep_ep::", Communication::all_to_all},
                                                {"nvshmem_all_to_all", Communication::all_to_all},
                                                {"all_to_all_v", Communication::all_to_all}}};

// DeepEP's, in traces that have names of functions without their namespaces.
constexpr auto kExchanges =
    std::to_array<std::string_view>({"dispatch", "combine", "notify_dispatch", "cached_notify_dispatch",
                                     "cached_notify_combine", "notify_combine", "cached_notify"});

constexpr auto kLibraries = std::to_array<std::string_view>({"nccl", "rccl", "mscclKernel", "hccl", "oneccl"});

/// "void (anonymous namespace)::two_shot_all_reduce_kernel<…>" of a kernel's whole name.
std::string_view before_arguments(std::string_view name) {
  std::size_t at = name.find('(');
  while (at != std::string_view::npos && name.substr(at).starts_with("(anonymous")) at = name.find('(', at + 1);
  return name.substr(0, at);
}

template <typename Value, std::size_t count>
std::optional<Value> first_part(const Table<Value, count>& table, std::string_view text) {
  for (const auto& [part, value] : table) {
    if (has(text, part)) return value;
  }
  return std::nullopt;
}

// Ops that make, view or describe tensors, and those that only call others.
constexpr auto kNoWork = std::to_array<std::string_view>({"empty",
                                                          "view",
                                                          "as_strided",
                                                          "reshape",
                                                          "transpose",
                                                          "t",
                                                          "detach",
                                                          "expand",
                                                          "slice",
                                                          "select",
                                                          "permute",
                                                          "squeeze",
                                                          "unsqueeze",
                                                          "narrow",
                                                          "split",
                                                          "chunk",
                                                          "unbind",
                                                          "resize",
                                                          "set",
                                                          "alias",
                                                          "item",
                                                          "is_nonzero",
                                                          "empty_like",
                                                          "new_empty",
                                                          "lift_fresh",
                                                          "to",
                                                          "result_type",
                                                          "flatten",
                                                          "unflatten",
                                                          "split_with_sizes",
                                                          "unsafe_view",
                                                          "empty_strided",
                                                          "new_empty_strided",
                                                          "view_as",
                                                          "expand_as",
                                                          "record_stream",
                                                          "real",
                                                          "swapaxes",
                                                          "movedim"});

}  // namespace

RowKind row_kind(std::string_view category) {
  const auto found = std::ranges::find(kCategories, category, &std::pair<std::string_view, RowKind>::first);
  return found == kCategories.end() ? RowKind::other : found->second;
}

HostWork work_of_call(std::string_view name) {
  if (has(name, "Synchronize")) return HostWork::synchronise;
  if (has(name, "LaunchHostFunc")) return HostWork::runtime;
  return has(name, "Launch") || has(name, "Memcpy") || has(name, "Memset") ? HostWork::launch : HostWork::runtime;
}

std::optional<Communication> communication_of_kernel(std::string_view name) {
  const std::string_view plain = before_arguments(name);
  // In a template's kernel the return type comes first: "void ncclKernel…", "void
  // vllm::cross_device_reduce_1stage<…".
  const auto library = [&](std::string_view word) {
    const std::size_t at = plain.find(word);
    return at != std::string_view::npos && (at == 0 || plain[at - 1] == ' ' || plain[at - 1] == ':');
  };
  if (std::ranges::any_of(kLibraries, library)) return first_part(kLibraryWords, plain).value_or(Communication::other);
  if (const auto kind = first_part(kOwnKernels, plain)) return kind;
  std::string_view function = plain.substr(0, plain.find('<'));
  if (const auto at = function.find_last_of(" :"); at != std::string_view::npos) function.remove_prefix(at + 1);
  if (std::ranges::find(kExchanges, function) != kExchanges.end()) return Communication::all_to_all;
  return std::nullopt;
}

bool is_range_of_collective(std::string_view name) {
  constexpr auto kBackends =
      std::to_array<std::string_view>({"gloo:", "nccl:", "nccl2:", "rccl:", "mpi:", "ucc:", "xccl:"});
  return std::ranges::any_of(kBackends, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::optional<Communication> communication_of_call(std::string_view name) {
  if (is_range_of_collective(name)) name.remove_prefix(name.find(':') + 1);
  while (name.starts_with('_')) name.remove_prefix(1);
  constexpr Table<Communication, 13> kCalls{{{"reduce_scatter", Communication::reduce_scatter},
                                             {"allgather", Communication::all_gather},
                                             {"all_gather", Communication::all_gather},
                                             {"allreduce", Communication::all_reduce},
                                             {"all_reduce", Communication::all_reduce},
                                             {"all_to_all", Communication::all_to_all},
                                             {"alltoall", Communication::all_to_all},
                                             {"broadcast", Communication::broadcast},
                                             {"barrier", Communication::barrier},
                                             {"reduce", Communication::reduce},
                                             {"gather", Communication::gather},
                                             {"scatter", Communication::scatter},
                                             {"send", Communication::send}}};
  if (const auto kind = first_part(kCalls, name)) return kind;
  if (name.starts_with("recv")) return Communication::receive;
  if (name == "wait" || name.starts_with("init") || name.empty()) return std::nullopt;
  return Communication::other;
}

std::optional<Communication> communication_of_op(std::string_view name) {
  for (const std::string_view library : {"c10d::", "_c10d_functional::", "c10d_functional::"}) {
    if (!name.starts_with(library)) continue;
    const std::string_view op = name.substr(library.size());
    return op.starts_with("wait_tensor") ? std::nullopt : communication_of_call(op);
  }
  return std::nullopt;
}

std::optional<Activity> work_of_op(std::string_view name) {
  if (communication_of_op(name) || name == "record_param_comms" || is_range_of_collective(name)) return std::nullopt;
  const std::size_t colons = name.find("::");
  if (colons == std::string_view::npos) return std::nullopt;  // "autograd::engine::…" and ranges have none of work
  const std::string_view library = name.substr(0, colons);
  std::string_view op = name.substr(colons + 2);
  while (op.starts_with('_')) op.remove_prefix(1);
  while (op.ends_with('_')) op.remove_suffix(1);
  if (op.starts_with("autograd::")) return std::nullopt;
  if (library == "autograd" || library == "profiler" || library == "prim" || library == "c10" || library == "c10d" ||
      library == "_c10d_functional")
    return std::nullopt;
  if (std::ranges::find(kNoWork, op) != kNoWork.end()) return std::nullopt;
  if (op == "zero" || op == "fill" || op == "zeros" || op == "ones" || op == "full") return Activity::fill;
  const bool copies = has(op, "copy") || op == "cat" || op == "clone" || op == "chunk_cat" || op == "to_copy";
  return copies ? Activity::copy : Activity::computation;
}
namespace {

using schedule::Phase;

bool has_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

KernelKind kind_of_own(std::string_view op) {
  if (op == "optimizer" || op == "gradient_norm" || op == "clip") return KernelKind::optimizer;
  if (op == "finish_gradient" || op == "accumulate_gradients") {
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
  if (has_one_of(word, {"flash", "fmha", "attn", "attention", "sdpa"})) return KernelKind::attention;
  if (has_one_of(word, {"adam", "adagrad", "fusedsgd", "fused_sgd", "lpnormfunctor"})) return KernelKind::optimizer;
  if (is_matrix_product(name) || has_one_of(word, {"gemv", "splitk", "xmma", "convolution", "conv2d", "conv1d", "cudnn",
                                                   "dgrad", "wgrad", "winograd", "matmul", "triton_tem_"})) {
    return KernelKind::products;
  }
  const bool fused = word.starts_with("triton_");  // names what was fused, of which a cast is a small part
  if (!fused && (is_layout_copy(name) || has_one_of(word, {"copy", "catarray", "chunk_cat", "memcpy", "memset"}))) {
    return KernelKind::copies;
  }
  if (fused || has_one_of(word, {"elementwise", "norm", "softmax", "reduce_kernel", "reduction", "silu", "gelu", "relu",
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

bool updates_parameters(std::string_view name) {
  if (has_one_of(name, {"Adam", "adam"})) return true;
  return name.find("multi_tensor_apply") != std::string_view::npos && name.find("::Copy<") == std::string_view::npos;
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

}  // namespace fsdpbench::foreign
