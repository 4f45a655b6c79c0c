#include "foreign/kernel_kinds.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/enum_table.h"
#include "config/words/fsdpbench.h"
#include "foreign/host_words.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;

bool has_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
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
