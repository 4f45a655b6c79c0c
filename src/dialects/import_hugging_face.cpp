// A language model's config.json of Hugging Face, and the adapters that its peft adds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "dialects/import_source.h"

namespace fsdpbench::dialects {
namespace {

constexpr auto kOfNoStep = std::to_array<std::string_view>({"architectures.",
                                                            "auto_map.",
                                                            "model_type",
                                                            "transformers_version",
                                                            "_name_or_path",
                                                            "torch_dtype",
                                                            "dtype",
                                                            "use_cache",
                                                            "initializer_range",
                                                            "bos_token_id",
                                                            "eos_token_id",
                                                            "eos_token_id.",
                                                            "pad_token_id",
                                                            "hidden_act",
                                                            "activation_function",
                                                            "max_position_embeddings",
                                                            "attention_dropout",
                                                            "attn_pdrop",
                                                            "embd_pdrop",
                                                            "resid_pdrop",
                                                            "pretraining_tp",
                                                            "rope_scaling.",
                                                            "rope_parameters.",
                                                            "task_specific_params.",
                                                            "summary_activation",
                                                            "summary_first_dropout",
                                                            "summary_proj_to_labels",
                                                            "summary_type",
                                                            "summary_use_proj",
                                                            "layer_types.",
                                                            "original_max_position_embeddings",
                                                            "n_ctx",
                                                            "id2label.",
                                                            "label2id.",
                                                            "is_decoder",
                                                            "scale_attn_weights",
                                                            "reorder_and_upcast_attn",
                                                            "scale_attn_by_inverse_layer_idx"});

/// Routers, and what lies beside the routed experts, which are `width` wide.
void read_experts(ImportSource& s, const std::string& type, std::optional<std::int64_t> width) {
  const auto experts = s.first_integer({"num_local_experts", "num_experts", "n_routed_experts"});
  const auto normalize = s.boolean("norm_topk_prob");
  const std::string score = s.text("scoring_func").value_or(type == "llama4_text" ? "sigmoid" : "softmax");
  const auto balance = s.number("router_aux_loss_coef");
  const bool balances = s.flag("output_router_logits");  // else transformers adds no loss
  if (!experts || *experts <= 1) return;
  s.put("model.experts", *experts);
  s.put_if("model.active_experts", s.first_integer({"num_experts_per_tok", "experts_per_token"}));
  if (score == "softmax" || score == "sigmoid") {
    s.put("model.router_score", score);
  } else {
    s.unread(fmt::format("scoring_func = {}: softmax stands for it", score));
  }
  // Where it is not said, as the classes have it: Mixtral and gpt-oss always divide, Llama 4 weighs by the score alone.
  const bool divides = type != "llama4_text" && type != "qwen3_moe" && type != "qwen2_moe" && type != "olmoe";
  s.put("model.router_normalize", normalize.value_or(divides));
  if (balances && balance && *balance > 0 && score == "softmax") s.put("model.router_aux_loss", *balance);
  for (const std::string_view each : {"decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"}) {
    const auto every = s.integer(each);
    if (every && *every != 1) s.unread(fmt::format("{} = {}: every block has experts here", each, *every));
  }
  if (const auto dense = s.integer("first_k_dense_replace"); dense && *dense > 0) {
    s.unread(fmt::format("first_k_dense_replace = {}: those blocks have experts here, too", *dense));
  }
  const auto shared = type == "llama4_text" ? std::optional<std::int64_t>(1) : s.integer("n_shared_experts");
  if (shared && *shared > 0) s.put("model.shared_experts", *shared);
  // Qwen2-MoE's and Qwen3-Next's has a width of its own, and a gate by which what it gives is multiplied.
  const auto own = s.integer("shared_expert_intermediate_size");
  if (own && *own > 0 && width && *width > 0 && *own % *width == 0) {
    s.put("model.shared_experts", *own / *width);
    s.unread("shared_expert_gate: the shared expert has no gate here");
  } else if (own && *own > 0) {
    s.unread(fmt::format("shared_expert_intermediate_size = {}: no multiple of an expert's width", *own));
  }
  if (s.text("topk_method") == "noaux_tc") s.unread("topk_method = noaux_tc: the router's bias and groups of experts");
}

constexpr auto kOfNoAdapter = std::to_array<std::string_view>(
    {"base_model_name_or_path", "revision", "task_type", "inference_mode", "auto_mapping.", "peft_version",
     "fan_in_fan_out", "init_lora_weights", "megatron_core", "qalora_group_size", "r", "lora_alpha"});

/// "blocks:4-7", if all from the first to the last are listed.
std::optional<std::string> neighbours(const std::vector<std::string>& blocks) {
  std::vector<std::int64_t> numbers;
  for (const std::string& block : blocks) {
    std::int64_t& number = numbers.emplace_back();
    const auto [end, error] = std::from_chars(block.data(), block.data() + block.size(), number);
    if (error != std::errc() || end != block.data() + block.size()) return std::nullopt;
  }
  std::ranges::sort(numbers);
  const auto gap = std::ranges::adjacent_find(numbers, [](auto a, auto b) { return b != a + 1; });
  if (numbers.empty() || gap != numbers.end()) return std::nullopt;
  return fmt::format("blocks:{}-{}", numbers.front(), numbers.back());
}

}  // namespace

void read_peft(ImportSource& s) {
  const std::string kind = s.text("peft_type").value_or("");
  if (kind != "LORA") {
    s.unread(fmt::format("peft_type = {}: of peft's adapters LORA alone is read", kind));
    return;
  }
  const std::int64_t rank = s.integer("r").value_or(8);
  const double alpha = s.number("lora_alpha").value_or(8);
  s.put("model.lora_rank", rank);
  // lora_alpha / sqrt(r) in place of lora_alpha / r.
  s.put("model.lora_alpha", s.flag("use_rslora") ? alpha * std::sqrt(static_cast<double>(rank)) : alpha);
  const std::vector<std::string> targets = s.list("target_modules"), blocks = s.list("layers_to_transform");
  const auto products =
      std::to_array<std::string_view>({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
  const bool all =
      targets == std::vector<std::string>{"all-linear"} || std::ranges::all_of(products, [&](std::string_view product) {
        return std::ranges::find(targets, product) != targets.end();
      });
  if (!all) {
    s.unread(
        fmt::format("target_modules = {}: here all matrix products of a block have adapters",
                    targets.empty() ? "peft's choice for the model" : fmt::format("{}", fmt::join(targets, ", "))));
  }
  if (const std::optional<std::string> trained = neighbours(blocks)) {
    s.put("model.trainable", *trained);
  } else if (!blocks.empty()) {
    s.unread(fmt::format("layers_to_transform = {}: blocks that are no neighbours; all have adapters here",
                         fmt::join(blocks, ", ")));
  }
  if (const std::string bias = s.text("bias").value_or("none"); bias != "none") {
    s.unread(fmt::format("bias = {}: no bias trains here", bias));
  }
  if (const double dropout = s.number("lora_dropout").value_or(0); dropout > 0) {
    s.unread(fmt::format("lora_dropout = {}: adapters have no dropout here", dropout));
  }
  for (const std::string_view other : {"use_dora", "use_qalora", "lora_bias", "ensure_weight_tying"}) {
    if (s.flag(other)) s.unread(fmt::format("{} = true", other));
  }
  s.ignore(kOfNoAdapter);
}

void read_hugging_face(ImportSource& s, const std::string& path) {
  if (!s.has("hidden_size") && s.has("text_config.hidden_size")) {
    s.take("model_type");
    s.lift("text_config.");
    s.ignore(std::to_array<std::string_view>({"vision_config.", "audio_config."}));
    s.unread("all but text_config: the model of the text alone is read");
  }
  const std::string type = s.text("model_type").value_or("");
  const bool gpt2 = type == "gpt2";
  s.put("model.kind", "decoder");
  const auto layers = s.first_integer({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  const auto width = s.first_integer({"hidden_size", "n_embd", "d_model"});
  if (!layers || !width) {
    throw ConfigError(fmt::format("{}: no {}: this is no configuration of a language model that can be read.", path,
                                  !layers ? "num_hidden_layers" : "hidden_size"));
  }
  s.put("model.layers", *layers);
  const auto heads = s.first_integer({"num_attention_heads", "n_head", "n_heads"});
  s.put_if("model.width", width);
  s.put_if("model.heads", heads);
  const auto kv_heads = s.first_integer({"num_key_value_heads", "n_kv_heads"});
  s.put_if("model.kv_heads", kv_heads ? kv_heads : heads);
  const auto head_dim = s.integer("head_dim");
  if (head_dim && width && heads && *head_dim * *heads != *width) s.put("model.head_dim", *head_dim);
  const auto expert_width = s.integer("moe_intermediate_size");
  const auto inner = s.first_integer({"intermediate_size", "n_inner", "ffn_dim"});
  s.put_if("model.ffn_width", expert_width ? expert_width : inner);
  if (!inner && !expert_width && gpt2 && width) s.put("model.ffn_width", 4 * *width);
  s.put_if("model.vocab", s.integer("vocab_size"));
  const auto tied = s.boolean("tie_word_embeddings");
  s.put("model.tied_head", tied.value_or(gpt2 || type.starts_with("gemma") || type == "opt"));
  const auto theta = s.number("rope_theta");
  s.put_if("model.rope_theta", theta ? theta : s.number("rope_parameters.rope_theta"));
  auto epsilon = s.number("rms_norm_eps");
  if (!epsilon) epsilon = s.number("layer_norm_epsilon");
  s.put_if("model.norm_epsilon", epsilon);
  read_experts(s, type, expert_width ? expert_width : inner);
  if (const auto latent = s.integer("kv_lora_rank"); latent && heads) {
    s.put("model.kv_heads", std::max<std::int64_t>(1, *heads / 16));
    s.put_if("model.head_dim", s.integer("v_head_dim"));
    s.ignore(std::to_array<std::string_view>({"q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"}));
    s.unread(
        fmt::format("kv_lora_rank = {}: latent attention; attention whose queries share {} heads of keys and "
                    "values stands for it",
                    *latent, std::max<std::int64_t>(1, *heads / 16)));
  }
  const bool windows = s.boolean("use_sliding_window").value_or(true);
  const auto window = s.integer("sliding_window");
  if (window && windows) {
    s.put("model.attention_window", *window);
    if (type == "gpt_oss") s.put("model.full_attention_every", std::int64_t{2});
  }
  if (gpt2) {
    s.put("model.feed_forward", "plain");
    s.put("model.norm", "layer");
    s.put("model.bias", true);
    s.put("model.fused_projections", true);
    s.put("model.learned_positions", s.first_integer({"n_positions", "n_ctx"}).value_or(1024));
  } else if (type == "qwen3" || type == "qwen3_moe") {
    s.put("model.qk_norm", true);
  } else if (type == "phi3") {
    s.put("model.fused_projections", true);
  } else if (type == "gpt_oss") {
    s.put("model.attention_sinks", true);
    s.put("model.bias", true);
  } else if (type == "qwen2") {
    s.unread("biases of queries, keys and values");
  } else if (type != "llama" && type != "mistral" && type != "mixtral" && type != "llama4_text") {
    s.unread(fmt::format("model_type = {}: its blocks are read as those of a Llama", type.empty() ? "none" : type));
  }
  if (s.flag("attention_bias") && type != "gpt_oss") s.unread("attention_bias = true");
  if (s.flag("mlp_bias")) s.unread("mlp_bias = true");
  s.ignore(kOfNoStep);
}

}  // namespace fsdpbench::dialects
