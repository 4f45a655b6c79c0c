#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"

/// What Accelerate and the Trainer say alike: the Trainer hands its fsdp_config to Accelerate's plugin.
namespace fsdpbench::dialects {

/// The version of Accelerate's plugin: 1 for a flat layout, else 2.
int hugging_face_version(const config::RunConfig& config);
/// The preset that Accelerate's plugin of that version does as.
std::string_view hugging_face_engine(const config::RunConfig& config);

/// "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP" or "NO_WRAP".
std::string_view wrap_policy(const ExportSource& source);
/// Version 1: "FULL_SHARD" …, of sharding_strategy; version 2: "true" or "false", of reshard_after_forward.
std::string_view reshard_word(const ExportSource& source);
/// "BACKWARD_PRE", "BACKWARD_POST" or "NO_PREFETCH".
std::string_view backward_prefetch_word(const ExportSource& source);

/// What becomes of fsdp.strategy and reshard_after_forward. `word`: the name of version 1's strategy. Its
/// reshard_after_forward takes a strategy, too, but gives way to sharding_strategy, which is FULL_SHARD unless it is
/// set.
Said sharding_said(const ExportSource& source, std::string_view word);
Said reshard_said(const ExportSource& source, std::string_view word);

/// `own`, then the rules that both systems share.
std::vector<KeyRule> with_hugging_face_rules(std::span<const KeyRule> own);

}  // namespace fsdpbench::dialects
