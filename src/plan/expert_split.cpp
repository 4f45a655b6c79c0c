#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "plan/module_sizes.h"

namespace fsdpbench::plan {

ExpertSplit expert_split(const config::RunConfig& config) {
  const config::Mesh& mesh = config.mesh;
  const config::Model& model = config.model;
  if (mesh.expert == 1) return {};
  ExpertSplit split;
  split.imbalance = imbalance_of(mesh.expert_imbalance, model.experts, model.active_experts, mesh.expert);
  split.ranks = static_cast<int>(mesh.expert);
  split.told = mesh.expert_sync;
  using config::CheckpointKeeps;
  const CheckpointKeeps keeps = config.fsdp.checkpoint_keeps;
  split.repeats = keeps == CheckpointKeeps::nothing || keeps == CheckpointKeeps::all_but_feed_forward;
  split.overlap = mesh.expert_overlap;
  split.rows = mesh.expert_rows;
  return split;
}

ExpertSplit even_expert_split(config::RunConfig config) {
  config.mesh.expert_imbalance = {};
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
  return checked_product(tokens, std::min(model.active_experts, of_experts));
}

}  // namespace fsdpbench::plan
