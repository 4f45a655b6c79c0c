#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "config/run_config.h"

namespace fsdpbench::plan {

/// Split of a block's experts over ranks, and how many rows come to them and leave for them, over those with
/// which a rank's tokens visit experts.
struct ExpertSplit {
  int ranks = 1;
  double imbalance = 1;  ///< rows that come to the busiest rank's experts, from all ranks, over one rank's visits
  bool told = false;     ///< the host waits for the numbers of rows (mesh.expert_sync)
  bool repeats = true;   ///< a recomputation exchanges rows again; false: what came is kept (fsdp.checkpoint_keeps)
  config::ExpertRows rows = config::ExpertRows::each_expert;

  /// Ranks on which a token's experts are, on average, where each is chosen independently of the others: of E ranks
  /// with n of N experts each, E (1 - C(N - n, k) / C(N, k)); mesh.expert_rows = one_rank: 1.
  double ranks_of_token(const config::Model& model) const;
  /// Number of rows that come to a rank's experts from `visits` to experts.
  std::int64_t arrived_rows(std::int64_t visits) const;
  /// Number of rows, of `visits` to experts, that are sent for them: one for each visit, or for each rank of a token.
  std::int64_t sent_rows(const config::Model& model, std::int64_t visits) const;
};

/// The experts' split of a valid configuration.
ExpertSplit expert_split(const config::RunConfig& config);
/// Split where all experts are visited equally often.
ExpertSplit even_expert_split(config::RunConfig config);

/// Part of a module between two exchanges with the ranks that split it, and the exchange after it.
struct ModulePart {
  enum class Exchange : std::uint8_t {
    none,
    sum,       ///< `count` elements, of all
    gather,    ///< `count` elements of each
    scatter,   ///< the sum, of which each gets `count` elements
    dispatch,  ///< rows to the ranks that have their experts (mesh.expert): `count` elements to each
    combine,   ///< rows back from them
  };
  double flops = 0;
  Exchange exchange = Exchange::none;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  /// Before rows are dispatched: how many numbers of rows each rank tells each other, which the host waits for; 0:
  /// none. Without an exchange: the host waits for those that a forward was told, which the device has kept.
  std::int64_t told = 0;
  bool of_context = false;  ///< it is with the ranks that split the sequence (mesh.context): keys and values
  /// Bytes of the buffer, if it has more than what is exchanged: keys and values beside their gradients. 0:
  /// `count`s.
  std::int64_t room = 0;

  /// Rows go to experts, or come back from them.
  bool of_experts() const { return exchange == Exchange::dispatch || exchange == Exchange::combine; }
  /// Bytes of the buffer that is exchanged among `ranks`. For rows of experts: those that are sent and those that come.
  std::int64_t bytes(std::int64_t ranks) const {
    if (room > 0) return room;
    if (of_experts()) return count * size_of(dtype) * ranks * 2;
    return count * size_of(dtype) * (exchange == Exchange::gather || exchange == Exchange::scatter ? ranks : 1);
  }
};

/// Device bytes that one module needs for one microbatch, and its arithmetic. Filled by model/ (who knows the
/// tensors), used by schedule/ (who places them) and by the estimates.
struct ModuleSizes {
  std::int64_t batch_input_bytes = 0;         ///< first module: the microbatch's inputs on the device
  std::int64_t batch_target_bytes = 0;        ///< first module too: its targets
  std::int64_t output_bytes = 0;              ///< what it hands to the next module; 0 for a loss
  std::int64_t saved_bytes = 0;               ///< kept from forward to backward, its input not counted
  std::int64_t forward_workspace_bytes = 0;   ///< only while forward runs
  std::int64_t backward_workspace_bytes = 0;  ///< only while backward runs
  /// fsdp.checkpoint_keeps, of a checkpointed block: what is kept for its recomputation, and what of it is among
  /// saved_bytes.
  std::int64_t kept_output_bytes = 0, kept_saved_bytes = 0;
  std::int64_t feed_forward_saved_bytes = 0;  ///< of saved_bytes, of an outline's block: those of its feed-forward
  double forward_flops = 0;                   ///< of matrix products and attention, 2 a multiply-add
  double recompute_flops = 0;  ///< of a forward that only saves for backward; of modules that can be recomputed
  double backward_flops = 0;
  /// mesh.tensor > 1, mesh.context > 1 or mesh.expert > 1: each pass in parts, of which only a module's own last one
  /// may do without an exchange. Empty: all at once.
  std::vector<ModulePart> forward_parts, recompute_parts, backward_parts;
};

}  // namespace fsdpbench::plan
