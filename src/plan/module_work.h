#pragma once

#include <cstdint>
#include <vector>

#include "config/run_config.h"
#include "plan/model_shapes.h"
#include "plan/module_sizes.h"

namespace fsdpbench::plan {

/// `count` equal matrix products of a module's forward: [m, k] times [k, n] each. Its backward has up to two for each:
/// [m, n] times [n, k] for the input's gradient, [n, m] times [m, k] for the weight's.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t count = 1;
  std::int64_t launches = 1;  ///< the products of experts are grouped: so many kernels do them all
  bool grouped = false;       ///< they are experts'
  std::int64_t kept = 0;      ///< of `count`: their outputs are kept where the module is recomputed
  bool trains = true;         ///< the weight's gradient is wanted
  bool input_trains = true;   ///< the input's gradient is wanted
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(count);
  }
  /// Part of them that a recomputation does. Those of which outputs are kept are not grouped: each has its own launch.
  Product recomputed() const { return {m, n, k, count - kept, launches - kept}; }
  Product input_gradient() const { return {m, k, n, count, launches}; }
  Product weight_gradient() const { return {n, k, m, count, launches}; }
  /// Those of the two that are wanted.
  std::vector<Product> backward() const;
};

/// Causal attention of one microbatch.
struct AttentionWork {
  std::int64_t rows = 0;     ///< tokens in all
  std::int64_t seq_len = 0;  ///< tokens of a sequence
  std::int64_t heads = 0;    ///< of queries; 0: no attention here
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  ///< tokens back, 0: all
  bool kept = false;        ///< its output is kept where the module is recomputed
  /// Tokens that a token attends to, on average, as integrals: s/2 without a window, w - w*w/(2s) with one of w < s.
  double mean_span() const;
  /// FLOPs of the forward: its two products over the scores that count. The backward has five of them.
  double flops() const;
};

/// Elements that memory-bound kernels read and write in one pass, as separate kernels (eager) or where a compiler or a
/// kernel written for it joins neighbours (fused), and how many kernels those are.
struct Passes {
  double eager = 0;
  double fused = 0;
  int eager_kernels = 0;
  int fused_kernels = 0;
};

/// The arithmetic of one pass of a block, by what an exchange may come between, and what of it falls to each part that
/// the pass runs in (module_sizes.h), where ranks split layers; `by_tokens`: and the tokens between them.
struct BlockFlops {
  double projections = 0;  ///< to queries, keys and values
  double attention = 0;    ///< with the product after it
  double expanding = 0;    ///< feed-forward but for its last product
  double contracting = 0;  ///< that one
  double routing = 0;      ///< mesh.expert: the router's product, which is then not in `expanding`
  double shared = 0;       ///< mesh.expert: the shared expert's products

  double total() const { return projections + attention + expanding + contracting + routing + shared; }
  /// Before the rows go to their experts, there, and after they came back: forward and recomputation; backward.
  std::vector<double> expert_parts(bool backward) const;
  /// Up to the gather of keys and values, and after it; backward: up to that gather, attention, after the sum of their
  /// gradients.
  std::vector<double> gathered_parts(bool backward) const;
  std::vector<double> forward_parts(bool by_tokens) const;
  std::vector<double> backward_parts(bool by_tokens) const;
};

/// Work of one module for one microbatch, kernel by kernel: what its time on a GPU follows from.
struct ModuleWork {
  ModuleKind kind = ModuleKind::block;
  std::vector<Product> products;
  int projections = 0;      ///< of the first ones: to queries, keys and values
  int kept_products = 0;    ///< of the last ones: not needed again when the forward is recomputed
  int shared_products = 0;  ///< of the last ones: those of model.shared_experts
  /// Products of model.lora_rank: two for each product, down and up. The last one is not needed again.
  std::vector<Product> adapters;
  bool has_backward = true;  ///< false: no gradient comes here, as nothing before trains
  AttentionWork attention;
  Passes forward, recompute, backward;
  double table_elements = 0;  ///< backward: of the embedding's gradient, filled with zeros and added to
  bool by_experts = false;    ///< mesh.expert above 1: its parts are those between the exchanges of rows
  bool by_context = false;    ///< mesh.context above 1: its parts are those between exchanges of keys and values
  bool by_tokens = false;  ///< mesh.sequence_parallel: its parts are those of [Note: parts by tokens] (model/model.h)

  double forward_flops() const;
  double recompute_flops() const;
  double backward_flops() const;

  enum class Pass : std::uint8_t { forward, recompute, backward };
  /// The forward's products that pass `pass` does, or that its own follow from: adapters come last.
  std::vector<Product> products_of(Pass pass) const;
  /// FLOPs of a block.
  BlockFlops block_flops(Pass pass) const;
  /// FLOPs of the parts of a pass of a block whose experts ranks split.
  std::vector<double> expert_parts(Pass pass) const;
  /// Share of a pass's arithmetic in part `part` of it (module_sizes.h); 1 if it is not in parts (-1).
  double share(Pass pass, int part) const;
};

/// The work of every module of `model` in forward order; `rows` = batch * seq_len tokens (mlp: samples, seq_len 1).
/// Experts are taken to be visited equally often. `token_ranks`: so many ranks share the norms and residual sums, token
/// by token. `experts`: of the busiest rank among those that split the experts. `keeps`: of checkpointed blocks.
/// `context`: ranks split each sequence so that each attends as much (two pieces, from its begin and its end).
std::vector<ModuleWork> module_work(const config::Model& model, std::int64_t batch, std::int64_t seq_len,
                                    int token_ranks = 1, const ExpertSplit& experts = {},
                                    config::CheckpointKeeps keeps = config::CheckpointKeeps::nothing,
                                    std::int64_t context = 1);

/// Tells the blocks' sizes what fsdp.checkpoint_keeps of `config` keeps of them, and what their recomputation is then.
/// `sizes`: by module, of the same configuration.
void set_kept_outputs(const config::RunConfig& config, std::vector<ModuleSizes>& sizes);

}  // namespace fsdpbench::plan
