#include "plan/module_work.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "plan/module_sizes.h"

namespace fsdpbench::plan {
namespace {

ModuleWork work_of(ModuleKind kind) {
  ModuleWork work;
  work.kind = kind;
  return work;
}

/// The work of a decoder's modules. Elements are counted a row (token): D residual width, F feed-forward, Q and K
/// queries' and keys' width, V vocabulary.
class DecoderWork {
 public:
  DecoderWork(const config::Model& model, std::int64_t batch, std::int64_t seq_len, int token_ranks,
              const ExpertSplit& split, config::CheckpointKeeps keeps, std::int64_t context)
      : m_(model),
        seq_len_(seq_len),
        rows_(batch * seq_len / context),
        token_ranks_(token_ranks),
        split_(split),
        keeps_(keeps),
        keeps_module_(config::checkpoints_a_module(keeps)) {}

  ModuleWork embedding() const {
    ModuleWork work = work_of(ModuleKind::embedding);
    const double positions = m_.learned_positions > 0 ? 3 * width() : 0;
    work.forward = {(2 * width() + positions) * rows(), (2 * width() + positions / 3) * rows(), 2, 1};
    work.backward = {(2 * width() + positions / 3) * rows(), (2 * width() + positions / 3) * rows(), 3, 3};
    work.table_elements = static_cast<double>(m_.vocab + m_.learned_positions) * width();
    work.has_backward = !m_.freezes();
    return work;
  }

  ModuleWork block(std::int64_t layer) const {
    ModuleWork work = work_of(ModuleKind::block);
    const std::int64_t queries = m_.heads * m_.head_size(), keys = m_.kv_heads * m_.head_size();
    const bool gated = m_.feed_forward == config::FeedForward::gated;
    const std::int64_t experts = std::max<std::int64_t>(m_.experts, 1),
                       active = std::max<std::int64_t>(m_.active_experts, 1);
    const bool joined = m_.fused_projections;
    if (joined) {
      work.products = {{rows_, queries + 2 * keys, m_.width}};
    } else {
      work.products = {{rows_, queries, m_.width}, {rows_, keys, m_.width, 2, 2}};
    }
    work.projections = static_cast<int>(work.products.size());
    work.products.push_back({rows_, m_.width, queries});
    if (m_.experts > 0) work.products.push_back({rows_, m_.experts, m_.width});
    // With few tokens only some experts have any.
    const std::int64_t visits = split_.arrived_rows(rows_ * active);
    const std::int64_t visited = std::min(experts / split_.ranks, visits);
    const std::int64_t each = (visits + visited - 1) / visited;
    work.by_experts = split_.ranks > 1;
    const std::int64_t into = gated && !joined ? 2 : 1, wide = gated && joined ? 2 : 1;
    work.products.push_back({each, wide * m_.ffn_width, m_.width, visited * into, into});
    work.products.push_back({each, m_.width, m_.ffn_width, visited});
    for (auto p = work.products.end() - 2; p != work.products.end(); ++p) p->grouped = m_.experts > 0;
    if (m_.shared_experts > 0) {
      work.products.push_back({rows_, wide * m_.shared_width(), m_.width, into, into});
      work.products.push_back({rows_, m_.width, m_.shared_width()});
      work.shared_products = 2;
    }
    // The router's gradient wants what the routed experts gave.
    work.kept_products = m_.experts > 0 && m_.shared_experts == 0 ? 0 : 1;
    work.attention = {rows_, seq_len_, m_.heads, m_.head_size(), m_.window_of(layer)};
    keep_outputs(work);

    const auto q = static_cast<double>(queries), k = static_cast<double>(keys);
    const double f = static_cast<double>(m_.ffn_width) * static_cast<double>(active) * split_.imbalance +
                     static_cast<double>(m_.shared_width());
    const double rotary = m_.learned_positions > 0 ? 0 : q + k;  // rows that are turned
    const double head_norms = m_.qk_norm ? 2 * (q + k) : 0;
    // To the experts and back, and their weighted sum.
    double routing = m_.experts > 0 ? (5 * static_cast<double>(active) + 1) * width() : 0;
    double routing_back = 2 * routing;
    if (split_.ranks > 1 && split_.rows != config::ExpertRows::each_expert) {
      // One kernel copies what came once for a rank to each of its experts, one sums it on the way back; the weights
      // are part of the activation. Their backwards are each other (Megatron's fused permutation, which Automodel
      // uses).
      const double arrived = split_.ranks_of_token(m_);
      routing = 2 * (static_cast<double>(active) + arrived) * split_.imbalance * width();
      routing_back = routing;
    } else if (split_.ranks > 1) {
      // Rows that come from other ranks are put into the order of the experts here, and back (torchtitan's
      // permute).
      routing += 4 * static_cast<double>(active) * split_.imbalance * width();
      routing_back = 2 * routing;
    }
    if (m_.shared_experts > 0) {  // what the shared expert gave is added
      routing += 3 * width();
      routing_back += 6 * width();
    }
    const double biases = m_.bias ? q + 2 * k + 2 * width() + (gated ? 2 : 1) * f : 0;
    // LayerNorm is one kernel everywhere. An eager RMSNorm is a chain of seven over fp32 copies (36 bytes an element,
    // 66 in backward), an eager rotation one of three (20 bytes).
    const bool chain = m_.norm == config::Norm::rms;
    const double norm = chain ? 18 : 2, norm_back = chain ? 33 : 4;
    const double activation = (gated ? 5 : 2) * f, fused_activation = (gated ? 3 : 2) * f;
    // Two norms, two residual sums (3D each); fused, a sum and the norm after it are one pass of 4D.
    work.forward.eager = rows() * ((6 + 2 * norm) * stream() + 10 * rotary + head_norms + activation + routing);
    work.forward.fused = rows() * (8 * stream() + 2 * rotary + head_norms + fused_activation + routing);
    work.forward.eager_kernels = (chain ? 18 : 5) + (rotary > 0 ? 6 : 0) + (head_norms > 0 ? 2 : 0) +
                                 (routing > 0 ? 12 : 0) + (m_.shared_experts > 0 ? (gated ? 3 : 2) : 0);
    work.forward.fused_kernels =
        3 + (rotary > 0 ? 2 : 0) + (head_norms > 0 ? 2 : 0) + (routing > 0 ? 8 : 0) + (m_.shared_experts > 0 ? 1 : 0);
    work.recompute = work.forward;
    if (keeps_ == config::CheckpointKeeps::all_but_attention) work.recompute = {};
    if (keeps_ == config::CheckpointKeeps::all_but_feed_forward) {  // from the norm before it
      work.recompute.eager = rows() * (norm * stream() + activation + routing);
      work.recompute.fused = rows() * (2 * stream() + fused_activation + routing);
      work.recompute.eager_kernels -= (chain ? 7 : 1) + 2 + (rotary > 0 ? 6 : 0) + (head_norms > 0 ? 2 : 0);
      work.recompute.fused_kernels -= 1 + (rotary > 0 ? 2 : 0) + (head_norms > 0 ? 2 : 0);
    }
    // Gradients that meet at the residual stream 3D each, and where several maps share an input. Joined ones do not
    // meet there: eager, those of their outputs are copied beside each other.
    const double joins = joined ? 2 * (q + 2 * k) + (gated ? 4 * f : 0) : 0;
    const double of_shared = m_.shared_experts > 0 ? (gated && !joined ? 6 : 3) * width() : 0;
    const double meeting = (joined ? 0 : (gated ? 9 : 6) * width()) + of_shared;
    work.backward.eager = rows() * ((6 + 2 * norm_back) * stream() + meeting + joins + 10 * rotary + 2 * head_norms +
                                    (gated ? 8 : 3) * f + biases + routing_back);
    work.backward.fused = rows() * (10 * stream() + meeting / 2 + 2 * rotary + 2 * head_norms + (gated ? 5 : 3) * f +
                                    biases + routing_back);
    work.backward.eager_kernels = 2 * work.forward.eager_kernels + (m_.bias ? 6 : 0);
    work.backward.fused_kernels = 2 * work.forward.fused_kernels + (m_.bias ? 6 : 0);
    freeze(layer, work);
    return work;
  }

  ModuleWork head() const {
    ModuleWork work = work_of(ModuleKind::head);
    work.products = {{rows_, m_.vocab, m_.width}};
    work.products.front().trains = !m_.freezes();
    const auto v = static_cast<double>(m_.vocab);
    // Logits to fp32, their log-softmax, and back: 14 and 22 bytes a logit; fused 6 and 6.
    work.forward = {rows() * (2 * stream() + 7 * v), rows() * (2 * stream() + 3 * v), 5, 3};
    work.backward = {rows() * (4 * stream() + 11 * v), rows() * (4 * stream() + 3 * v), 6, 3};
    return work;
  }

 private:
  /// PyTorch's list of operators names plain products (aten.mm) and not the grouped ones of experts; torchtitan counts
  /// the plain ones in the order of the forward and recomputes every second, and always the router's. Megatron
  /// checkpoints a module of the block, and nothing outside it is computed again.
  void keep_outputs(ModuleWork& work) const {
    using config::CheckpointKeeps;
    work.attention.kept = keeps_ != CheckpointKeeps::nothing && keeps_ != CheckpointKeeps::all_but_attention;
    std::int64_t before = 0;
    for (std::size_t i = 0; i < work.products.size(); ++i) {
      Product& product = work.products[i];
      const bool feeds_forward = i > static_cast<std::size_t>(work.projections);
      if (keeps_ == CheckpointKeeps::all_but_attention ||
          (keeps_ == CheckpointKeeps::all_but_feed_forward && !feeds_forward)) {
        product.kept = product.count;
      }
      if (product.grouped || (m_.experts > 0 && i == static_cast<std::size_t>(work.projections) + 1)) continue;
      if (keeps_ == CheckpointKeeps::products) product.kept = product.count;
      if (keeps_ == CheckpointKeeps::every_second_product) {
        product.kept = (before + product.count + 1) / 2 - (before + 1) / 2;
      }
      before += product.count;
    }
  }

  /// Frozen products, and the adapters that train. Theirs are elements as in PEFT's LoRA layer: its output times a
  /// factor and added to the product's, in backward the same factor, and the sum of two gradients of one input.
  void freeze(std::int64_t layer, ModuleWork& work) const {
    work.has_backward = layer >= m_.first_trained();
    for (Product& product : work.products) product.trains = m_.trains_weights(layer);
    const std::int64_t rank = m_.adapter_rank(layer);
    if (rank == 0) return;
    for (std::size_t i = 0; i < work.products.size(); ++i) {
      Product& product = work.products[i];
      product.input_trains = static_cast<int>(i) >= work.projections || !m_.input_is_frozen(layer);
      Product down{product.m, rank, product.k, product.count, product.launches};
      down.input_trains = product.input_trains;
      Product up{product.m, product.n, rank, product.count, product.launches};
      const bool module_kept = keeps_module_ && product.kept == product.count;
      if (module_kept) down.kept = up.kept = product.count;
      work.adapters.insert(work.adapters.end(), {down, up});
      const auto count = static_cast<double>(product.count), m = static_cast<double>(product.m);
      const double out = count * m * static_cast<double>(product.n);
      const double in = product.input_trains ? count * m * static_cast<double>(product.k) : 0;
      const int kernels = static_cast<int>(product.launches);
      add(work.forward, {5 * out, 3 * out, 2 * kernels, kernels});
      if (!module_kept) add(work.recompute, {5 * out, 3 * out, 2 * kernels, kernels});
      add(work.backward, {2 * out + 3 * in, 2 * out + 3 * in, 2 * kernels, 2 * kernels});
    }
  }

  static void add(Passes& passes, const Passes& more) {
    passes.eager += more.eager;
    passes.fused += more.fused;
    passes.eager_kernels += more.eager_kernels;
    passes.fused_kernels += more.fused_kernels;
  }

  double width() const { return static_cast<double>(m_.width); }
  double stream() const { return width() / token_ranks_; }  // between layers, where ranks may share the tokens
  double rows() const { return static_cast<double>(rows_); }

  const config::Model& m_;
  std::int64_t seq_len_;
  std::int64_t rows_;
  int token_ranks_;
  ExpertSplit split_;
  config::CheckpointKeeps keeps_;
  bool keeps_module_;
};

std::vector<ModuleWork> mlp_work(const config::Model& m, std::int64_t rows) {
  std::vector<ModuleWork> all;
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::int64_t in = i == 0 ? m.in_features : m.width, out = i + 1 == m.layers ? m.out_features : m.width;
    ModuleWork work = work_of(ModuleKind::linear);
    work.products = {{rows, out, in}};
    work.kept_products = 1;
    work.has_backward = i >= m.first_trained();
    work.products.front().trains = m.trains_weights(i);
    work.products.front().input_trains = i > m.first_trained();  // nobody wants the gradient of the batch
    const double relu = 2.0 * static_cast<double>(rows * in), bias = 2.0 * static_cast<double>(rows * out);
    work.forward = {relu + bias, relu, 2, 1};
    work.backward = {relu * 1.5 + bias, relu * 1.5 + bias, 2, 2};
    all.push_back(work);
  }
  ModuleWork loss = work_of(ModuleKind::mean_squared_error);
  const auto predictions = static_cast<double>(rows * m.out_features);
  loss.forward = {3 * predictions, 3 * predictions, 1, 1};
  loss.backward = {2 * predictions, 2 * predictions, 1, 1};
  all.push_back(loss);
  return all;
}

}  // namespace

double AttentionWork::mean_span() const {
  const auto s = static_cast<double>(seq_len), w = static_cast<double>(window);
  return window == 0 || window >= seq_len ? s / 2 : w - w * w / (2 * s);
}

double AttentionWork::flops() const {
  return 4.0 * static_cast<double>(rows) * mean_span() * static_cast<double>(heads * head_dim);
}

std::vector<Product> Product::backward() const {
  std::vector<Product> wanted;
  if (input_trains) wanted.push_back(input_gradient());
  if (trains) wanted.push_back(weight_gradient());
  return wanted;
}

std::vector<Product> ModuleWork::products_of(Pass pass) const {
  std::vector<Product> all = products;
  if (pass == Pass::recompute) {
    all.resize(all.size() - kept_products);
    for (Product& product : all) product = product.recomputed();
  }
  if (pass != Pass::recompute) {
    all.insert(all.end(), adapters.begin(), adapters.end());
    return all;
  }
  for (std::size_t i = 0; i + 1 < adapters.size(); ++i) all.push_back(adapters[i].recomputed());
  return all;
}

double ModuleWork::forward_flops() const {
  double flops = attention.flops();
  for (const Product& product : products_of(Pass::forward)) flops += product.flops();
  return flops;
}

double ModuleWork::recompute_flops() const {
  double flops = attention.kept ? 0 : attention.flops();
  for (const Product& product : products_of(Pass::recompute)) flops += product.flops();
  return flops;
}

double ModuleWork::backward_flops() const {
  if (!has_backward) return 0;
  double flops = 2.5 * attention.flops();
  for (const Product& product : products_of(Pass::backward)) {
    for (const Product& gradient : product.backward()) flops += gradient.flops();
  }
  return flops;
}

BlockFlops ModuleWork::block_flops(Pass pass) const {
  const bool back = pass == Pass::backward;
  const double times = back ? 2 : 1;
  const bool again = pass == Pass::recompute;
  const auto product = [&](std::size_t i) {
    return times * (again ? products[i].recomputed().flops() : products[i].flops());
  };
  const std::size_t shared = products.size() - shared_products, last = shared - 1, output = projections;
  const double attending = again && attention.kept ? 0 : (back ? 2.5 : 1) * attention.flops();
  BlockFlops flops{0, attending + product(output), 0, 0, 0};
  for (std::size_t i = 0; i < output; ++i) flops.projections += product(i);
  for (std::size_t i = output + 1; i < last; ++i) {
    (by_experts && i == output + 1 ? flops.routing : flops.expanding) += product(i);
  }
  const bool contracts = pass != Pass::recompute || kept_products == 0, shares = shared_products != 0;
  if (contracts || shares) flops.contracting = product(last);
  if (!shares) return flops;
  flops.shared = product(shared) + (contracts ? product(shared + 1) : 0);
  return flops;
}

std::vector<double> ModuleWork::expert_parts(Pass pass) const {
  return block_flops(pass).expert_parts(pass == Pass::backward);
}

double ModuleWork::share(Pass pass, int part) const {
  if (part < 0) return 1;
  const bool back = pass == Pass::backward;
  if (by_experts) return expert_parts(pass).at(part) / block_flops(pass).total();
  if (by_context) return block_flops(pass).gathered_parts(back).at(part) / block_flops(pass).total();
  if (kind == ModuleKind::embedding) return part == (by_tokens && back ? 1 : 0) ? 1 : 0;
  if (kind != ModuleKind::block) return part == (by_tokens ? 1 : 0) ? 1 : 0;
  const BlockFlops flops = block_flops(pass);
  const std::vector<double> parts = back ? flops.backward_parts(by_tokens) : flops.forward_parts(by_tokens);
  return parts[part] / flops.total();
}

std::vector<double> BlockFlops::expert_parts(bool backward) const {
  const double tokens = projections + attention + routing, experts = expanding + contracting;
  return backward ? std::vector<double>{shared, experts, tokens} : std::vector<double>{tokens + shared, experts, 0};
}

std::vector<double> BlockFlops::gathered_parts(bool backward) const {
  const double feed_forward = total() - attention - projections;
  return backward ? std::vector<double>{feed_forward, attention, projections}
                  : std::vector<double>{projections, attention + feed_forward};
}

std::vector<double> BlockFlops::forward_parts(bool by_tokens) const {
  const double first = projections + attention, second = expanding + contracting;
  return by_tokens ? std::vector<double>{0, first, 0, second, 0} : std::vector<double>{first, second, 0};
}

std::vector<double> BlockFlops::backward_parts(bool by_tokens) const {
  if (by_tokens) return {0, contracting, expanding, 0, attention, projections, 0, 0};
  return {expanding + contracting, attention + projections, 0};
}

std::vector<ModuleWork> module_work(const config::Model& model, std::int64_t batch, std::int64_t seq_len,
                                    int token_ranks, const ExpertSplit& experts, config::CheckpointKeeps keeps,
                                    std::int64_t context) {
  if (model.kind == config::ModelKind::mlp) return mlp_work(model, batch * seq_len);
  const DecoderWork decoder(model, batch, seq_len, token_ranks, experts, keeps, context);
  std::vector<ModuleWork> all{decoder.embedding()};
  for (std::int64_t i = 0; i < model.layers; ++i) all.push_back(decoder.block(i));
  all.push_back(decoder.head());
  for (ModuleWork& work : all) {
    work.by_tokens = token_ranks > 1;
    work.by_context = context > 1 && work.kind == ModuleKind::block;
  }
  return all;
}

namespace {

/// Bytes of a block that fsdp.checkpoint_keeps keeps for its recomputation, and those of them in its saved_bytes.
struct KeptBytes {
  std::int64_t kept = 0, saved = 0;
};

KeptBytes kept_outputs(const config::RunConfig& config, const ExpertSplit& split, const ModuleWork& work,
                       const ModuleSizes& sizes) {
  const AttentionWork& attention = work.attention;
  const std::int64_t element = size_of(config.fsdp.param_dtype);
  const std::int64_t sums = checked_product(attention.rows, attention.heads, size_of(DType::f32));
  if (config::checkpoints_a_module(config.fsdp.checkpoint_keeps)) {
    // Attention's output is an operand of the product after it, and saved as such.
    const bool attends = config.fsdp.checkpoint_keeps == config::CheckpointKeeps::all_but_attention;
    const std::int64_t kept = sizes.saved_bytes - (attends ? sums : sizes.feed_forward_saved_bytes);
    return {kept, kept};
  }
  const std::int64_t attended = checked_product(attention.rows, attention.heads * attention.head_dim, element) + sums;
  KeptBytes bytes{attended, attended};
  for (std::size_t i = 0; i < work.products.size(); ++i) {
    const Product& product = work.products[i];
    const std::int64_t output = checked_product(product.m, product.n * product.kept, element);
    bytes.kept += output;
    // An output that only goes into a residual sum is no operand of backward.
    const bool summed = i == static_cast<std::size_t>(work.projections) || i + 1 == work.products.size();
    if (!summed) bytes.saved += output;
  }
  if (config.mesh.expert > 1) {
    // torchtitan keeps what came in exchanges, too (all_to_all_single in _get_default_save_ops() of
    // torchtitan/distributed/activation_checkpoint.py at b5bcd76c). What experts gave is an operand of the router's
    // gradient; the rows that came to them are put in order first.
    const std::int64_t visits = checked_product(attention.rows, config.model.active_experts);
    const auto sent = [&](std::int64_t rows) {
      return checked_product(split.sent_rows(config.model, rows), config.model.width, element);
    };
    bytes.kept += sent(split.arrived_rows(visits)) + sent(visits);
    bytes.saved += sent(visits);
  }
  return bytes;
}

}  // namespace

void set_kept_outputs(const config::RunConfig& config, std::vector<ModuleSizes>& sizes) {
  const config::Fsdp& fsdp = config.fsdp;
  if (!fsdp.activation_checkpointing || fsdp.checkpoint_keeps == config::CheckpointKeeps::nothing) return;
  const ExpertSplit split = expert_split(config);
  const std::vector<ModuleWork> all =
      module_work(config.model, config.train.batch_per_rank, config.train.seq_len, 1, split, fsdp.checkpoint_keeps);
  for (std::size_t module = 0; module < all.size(); ++module) {
    const ModuleWork& work = all[module];
    if (work.kind != ModuleKind::block) continue;
    const KeptBytes bytes = kept_outputs(config, split, work, sizes[module]);
    sizes[module].kept_output_bytes = bytes.kept;
    sizes[module].kept_saved_bytes = bytes.saved;
    sizes[module].recompute_flops = work.recompute_flops();
    std::vector<ModulePart>& parts = sizes[module].recompute_parts;
    // Attention alone has no exchange of experts' rows in it.
    if (fsdp.checkpoint_keeps == config::CheckpointKeeps::all_but_attention) parts.clear();
    if (!work.by_experts) continue;
    const std::vector<double> flops = work.expert_parts(ModuleWork::Pass::recompute);
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].flops = flops.at(i);
  }
}

ExpertSplit expert_split(const config::RunConfig& config) {
  const config::Mesh& mesh = config.mesh;
  if (mesh.expert == 1) return {};
  ExpertSplit split;
  split.imbalance = mesh.expert_imbalance;
  split.ranks = static_cast<int>(mesh.expert);
  split.told = mesh.expert_sync;
  using config::CheckpointKeeps;
  const CheckpointKeeps keeps = config.fsdp.checkpoint_keeps;
  split.repeats = keeps == CheckpointKeeps::nothing || keeps == CheckpointKeeps::all_but_feed_forward;
  split.rows = mesh.expert_rows;
  return split;
}

ExpertSplit even_expert_split(config::RunConfig config) {
  config.mesh.expert_imbalance = 1;
  return expert_split(config);
}

std::int64_t ExpertSplit::arrived_rows(std::int64_t visits) const {
  return std::llround(std::ceil(static_cast<double>(visits) * imbalance));
}

double ExpertSplit::ranks_of_token(const config::Model& model) const {
  if (rows == config::ExpertRows::one_rank) return 1;
  const std::int64_t experts = model.experts, of_a_rank = experts / ranks;
  double misses = 1;  // that a rank has none of the token's experts
  for (std::int64_t i = 0; i < model.active_experts; ++i) {
    misses *= static_cast<double>(experts - of_a_rank - i) / static_cast<double>(experts - i);
  }
  return ranks * (1 - misses);
}

std::int64_t ExpertSplit::sent_rows(const config::Model& model, std::int64_t visits) const {
  if (rows == config::ExpertRows::each_expert) return visits;
  const double share = ranks_of_token(model) / static_cast<double>(model.active_experts);
  return std::llround(std::ceil(static_cast<double>(visits) * share));
}

}  // namespace fsdpbench::plan
