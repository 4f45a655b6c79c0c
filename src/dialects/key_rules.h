#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dialects/dialect.h"

/// What several systems say alike.
namespace fsdpbench::dialects {

inline Said same() { return {}; }
inline Said written(std::string how) { return {Fate::written, std::move(how)}; }
inline Said roughly(std::string what) { return {Fate::roughly, std::move(what)}; }
inline Said lost(std::string instead) { return {Fate::lost, std::move(instead)}; }
inline Said yours(std::string how) { return {Fate::yours, std::move(how)}; }

/// A rule for every key, for the systems that have none of their own: no word for it, or the training script's.
std::span<const KeyRule> common_rules();

/// `own`, then `others`: a key's first rule counts.
std::vector<KeyRule> joined_rules(std::span<const KeyRule> own, std::span<const KeyRule> others);

/// Units are freed after forward, the root aside: by the strategy's rule or because the key says so.
bool frees_after_forward(const ExportSource& source);
/// Some unit is gathered ahead in forward because a key says so, not because the host runs ahead.
bool prefetches_forward(const ExportSource& source);
/// Units ahead that a prefetch of this kind fetches, by the size of the largest unit where it counts elements; 0: none
/// are named.
int units_ahead(const ExportSource& source, const config::Prefetch& prefetch);
/// The only depth that a system with a yes or no for prefetching can express.
bool is_one_unit_ahead(const config::Prefetch& prefetch);

/// What becomes of mesh.expert_imbalance in a system that splits experts over ranks.
Said expert_imbalance(const ExportSource& source);
/// What becomes of fsdp.cpu_offload in a system that offloads shards together with all else, by this word.
Said offloads_all(const ExportSource& source, std::string word);

/// Each line after `mark`, ending in a newline; an empty line is the mark without trailing spaces.
std::string commented(std::string_view mark, const std::vector<std::string>& lines);
/// "True" or "False".
std::string_view python(bool value);
/// "torch.bfloat16" or "torch.float32".
std::string_view torch_dtype(DType type);
/// 1, 1, 1, 2, 0 as Python: "[1] * 3 + [2, 0]".
std::string python_runs(const std::vector<int>& counts);

}  // namespace fsdpbench::dialects
