#include "plan/parallelism.h"

#include <algorithm>

#include "base/ring.h"

namespace fsdpbench::plan {
namespace {

constexpr const char* kZero = "Rajbhandari et al. 2020, arXiv:1910.02054, sections 5 and 7";
constexpr const char* kHybrid = "Zhao et al. 2023, arXiv:2304.11277, section 3.2.2";
constexpr const char* kTensor =
    "Shoeybi et al. 2019, arXiv:1909.08053, section 3; activations: arXiv:2205.05198, equation 2";
constexpr const char* kPipeline = "Narayanan et al. 2021, arXiv:2104.04473, section 2.2";

/// What the formulas are made of.
struct Quantities {
  Quantities(const Plan& plan, const config::RunConfig& config)
      : parameters(static_cast<double>(plan.shapes.parameter_count())),
        low(static_cast<double>(size_of(plan.param_dtype))),
        gradient(static_cast<double>(size_of(plan.gradient_dtype))),
        reduce(static_cast<double>(size_of(plan.reduce_dtype))),
        optimizer((config.train.optimizer == config::Optimizer::adamw ? 8.0 : 0.0) +
                  (plan.param_dtype == DType::f32 ? 0.0 : 4.0)),
        micros(static_cast<double>(config.train.accumulate)),
        reductions(config.train.accumulate_mode == config::AccumulateMode::no_sync ? 1 : micros),
        across(config.train.accumulate_mode == config::AccumulateMode::reduce_each ? micros : 1),
        ranks(plan.mesh.ranks()) {}

  double parameters, low, gradient, reduce;
  double optimizer;  ///< bytes a parameter
  double micros, reductions, across;
  int ranks;
};

/// Parameters, gradients and optimizer states over so many devices each.
Parallelism states(const Quantities& q, const char* name, const char* source, int parameters, int gradients,
                   int optimizer) {
  Parallelism p{.name = name, .source = source, .needs = {}};
  p.parameters = q.low * q.parameters / parameters;
  p.gradients = q.gradient * q.parameters / gradients;
  p.optimizer = q.optimizer * q.parameters / optimizer;
  return p;
}

/// One unit whole beside the shards.
double one_unit(const Plan& plan, const Quantities& q) {
  double largest = 0;
  for (const Unit& unit : plan.units) {
    if (&unit == &plan.units.front() && plan.units.size() > 1) continue;
    largest = std::max(largest, static_cast<double>(unit.layout.parameter_numel() + unit.layout.replicated_numel));
  }
  return (q.low + q.gradient) * largest;
}

/// ZeRO-3 in groups of `shard`: gathered for forward and for backward, reduced, and added up across groups.
Parallelism sharded(const Plan& plan, const Quantities& q, const char* name, const char* source, int shard) {
  Parallelism p = states(q, name, source, shard, shard, shard);
  if (shard > 1) p.in_flight = one_unit(plan, q);
  p.wire = q.parameters * ring_share(shard) * (2 * q.micros * q.low + q.reductions * q.reduce) +
           q.parameters / shard * ring_share(q.ranks / shard, 2) * q.across * q.reduce;
  return p;
}

int hybrid_group(const Plan& plan) {
  const int ranks = plan.mesh.ranks();
  if (plan.mesh.shard > 1 && plan.mesh.shard < ranks) return plan.mesh.shard;
  int shard = std::min(8, ranks);
  while (ranks % shard != 0) --shard;
  return shard;
}

}  // namespace

std::vector<Parallelism> compare_parallelism(const Plan& plan, const config::RunConfig& config, double activations) {
  const Quantities q(plan, config);
  const int n = q.ranks;
  std::vector<Parallelism> all;
  const auto add = [&](Parallelism p, double kept) {
    p.activations = kept;
    all.push_back(std::move(p));
  };
  // All-reduce of the gradients.
  Parallelism data = states(q, "data parallel", kZero, 1, 1, 1);
  data.wire = q.parameters * ring_share(n, 2) * q.reductions * q.reduce;
  add(std::move(data), activations);
  // Reduce-scatter of the gradients, all-gather of the updated parameters: once a step each.
  Parallelism zero1 = states(q, "ZeRO-1", kZero, 1, 1, n);
  zero1.wire = q.parameters * ring_share(n) * (q.low + q.reductions * q.reduce);
  add(std::move(zero1), activations);
  // As shard_grad_op: gathered for each microbatch's forward and kept until its backward is over.
  Parallelism zero2 = states(q, "ZeRO-2", kZero, 1, n, n);
  const double gathers = config.fsdp.reshard_after_backward ? q.micros : 1;
  zero2.wire = q.parameters * ring_share(n) * (gathers * q.low + q.reductions * q.reduce);
  add(std::move(zero2), activations);
  add(sharded(plan, q, "ZeRO-3, full shard", kZero, n), activations);
  add(sharded(plan, q, "hybrid", kHybrid, hybrid_group(plan)), activations);

  // One replica for the global batch: it sees every rank's microbatches.
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  const double batches = n * q.micros;
  const double width = static_cast<double>(config.model.width) * q.low;
  const double boundary =
      static_cast<double>(config.train.batch_per_rank * (decoder ? config.train.seq_len : 1)) * width;
  const auto layers = static_cast<double>(config.model.layers);
  // Each layer: an all-reduce of its boundary after attention and after the feed-forward, both in forward and backward.
  // Of 34 bytes a token and channel that a layer keeps 24 are split; the norms' and dropouts' 10 are not.
  Parallelism tensor = states(q, "tensor", kTensor, n, n, n);
  tensor.wire = batches * layers * 4 * boundary * ring_share(n, 2);
  if (!decoder) tensor.needs = "attention heads to split";
  if (decoder && (config.model.heads % n != 0)) {
    tensor.needs = "ranks that divide model.heads = " + std::to_string(config.model.heads);
  }
  // mesh.sequence_parallel: each all-reduce becomes a reduce-scatter and a gather, what attention and the feed-forward
  // multiply is gathered again in backward, and all 34 bytes are split.
  Parallelism tokens = tensor;
  tokens.name = "tensor, tokens too";
  tokens.wire = batches * layers * 10 * boundary * ring_share(n);
  add(std::move(tensor), activations * (10 + 24.0 / n) / 34);
  add(std::move(tokens), activations / n);
  // 1F1B: a stage sends its boundary on and its gradient back for each microbatch; the first one keeps as many
  // microbatches as there are stages, of 1/n of the layers each.
  Parallelism pipeline = states(q, "pipeline (1F1B)", kPipeline, n, n, n);
  pipeline.wire = n > 1 ? 2 * batches * boundary : 0;
  pipeline.bubble = (n - 1) / (batches + n - 1);
  if (n > config.model.layers) {
    pipeline.needs = "at most model.layers = " + std::to_string(config.model.layers) + " ranks";
  }
  add(std::move(pipeline), activations * std::min<double>(n, batches) / n);
  return all;
}

}  // namespace fsdpbench::plan
