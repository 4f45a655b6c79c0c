#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "plan/module_sizes.h"

namespace fsdpbench::plan {
namespace {

/// Rows of `visits` tokens' visits to all experts where each takes at most `capacity`, over these visits: such that no
/// product with them is more than that, which rounding up would make a row.
double most_over_mean(std::int64_t capacity, std::int64_t experts, std::int64_t visits) {
  const auto rows = static_cast<double>(checked_product(capacity, experts));
  double ratio = rows / static_cast<double>(visits);
  while (ratio * static_cast<double>(visits) > rows) ratio = std::nextafter(ratio, 0.0);
  return ratio;
}

std::int64_t rounded_up(std::int64_t visits, double factor) {
  return std::llround(std::ceil(static_cast<double>(visits) * factor));
}

}  // namespace

std::int64_t expert_capacity(const config::Model& model, std::int64_t tokens) {
  if (model.experts == 0 || model.expert_capacity == 0) return 0;
  const double mean =
      static_cast<double>(checked_product(tokens, model.active_experts)) / static_cast<double>(model.experts);
  return static_cast<std::int64_t>(std::min(std::ceil(mean * model.expert_capacity), static_cast<double>(tokens)));
}

ExpertSplit whole_experts(const config::Model& model, std::int64_t tokens) {
  ExpertSplit split;
  const std::int64_t capacity = expert_capacity(model, tokens);
  if (capacity == 0) return split;
  const double most = most_over_mean(capacity, model.experts, checked_product(tokens, model.active_experts));
  split.imbalance = split.kept = model.expert_pad ? most : std::min(1.0, most);
  return split;
}

ExpertSplit expert_split(const config::RunConfig& config) {
  const config::Mesh& mesh = config.mesh;
  const config::Model& model = config.model;
  const std::int64_t tokens = config.train.batch_per_rank * config.train.seq_len / mesh.context;
  if (mesh.expert == 1) return whole_experts(model, tokens);
  const std::int64_t halves = mesh.expert_halves ? 2 : 1;  // each has a router, and an expert a capacity for it
  ExpertSplit split;
  if (const std::int64_t capacity = halves * expert_capacity(model, tokens / halves); capacity > 0) {
    const double most = most_over_mean(capacity, model.experts, checked_product(tokens, model.active_experts));
    const config::LimitedLoad load =
        limited_load(mesh.expert_imbalance, model.experts, model.active_experts, mesh.expert, most);
    split.imbalance = model.expert_pad ? most : load.busiest;
    split.kept = model.expert_pad ? most : load.mean;
  } else {
    split.imbalance = imbalance_of(mesh.expert_imbalance, model.experts, model.active_experts, mesh.expert);
  }
  split.ranks = static_cast<int>(mesh.expert);
  split.told = mesh.expert_sync && !model.expert_pad;
  using config::CheckpointKeeps;
  const CheckpointKeeps keeps = config.fsdp.checkpoint_keeps;
  split.repeats = keeps == CheckpointKeeps::nothing || keeps == CheckpointKeeps::all_but_feed_forward;
  split.overlap = mesh.expert_overlap;
  split.rows = mesh.expert_rows;
  split.halves = mesh.expert_halves;
  return split;
}

ExpertSplit even_expert_split(config::RunConfig config) {
  config.mesh.expert_imbalance = {};
  return expert_split(config);
}

std::int64_t ExpertSplit::arrived_rows(std::int64_t visits) const { return rounded_up(visits, imbalance); }

std::int64_t ExpertSplit::own_rows(std::int64_t visits) const { return rounded_up(visits, kept); }

double ExpertSplit::ranks_of_token(const config::Model& model) const {
  if (rows == config::ExpertRows::one_rank) return 1;
  const std::int64_t experts = model.experts, of_a_rank = experts / ranks;
  double misses = 1;  // that a rank has none of the token's experts
  for (std::int64_t i = 0; i < model.active_experts; ++i) {
    const std::int64_t elsewhere = std::max<std::int64_t>(experts - of_a_rank - i, 0);
    misses *= static_cast<double>(elsewhere) / static_cast<double>(experts - i);
  }
  return ranks * (1 - misses);
}

std::int64_t ExpertSplit::sent_rows(const config::Model& model, std::int64_t visits) const {
  if (rows == config::ExpertRows::each_expert) return visits;
  const double share = ranks_of_token(model) / static_cast<double>(model.active_experts);
  return std::llround(std::ceil(static_cast<double>(visits) * share));
}

std::int64_t RowExchange::most_rows(const config::Model& model, std::int64_t tokens, std::int64_t of_experts) {
  const std::int64_t visits = checked_product(tokens, std::min(model.active_experts, of_experts));
  const std::int64_t capacity = expert_capacity(model, tokens);
  if (capacity == 0) return visits;
  const std::int64_t limit = checked_product(capacity, of_experts);
  return model.expert_pad ? limit : std::min(visits, limit);
}

}  // namespace fsdpbench::plan
