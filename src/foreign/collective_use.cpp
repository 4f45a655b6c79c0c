#include "foreign/collective_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/enum_table.h"
#include "config/words/fsdpbench.h"
#include "config/words/words.h"
#include "foreign/kineto_names.h"
#include "foreign/xla_module.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;

constexpr std::int64_t kFewElements = 64;  // a rank's part of a norm, a loss, a flag

std::optional<Phase> phase_of_kernel(std::string_view name) {
  if (const auto own = dialects::own_name(name)) {
    if (own->op == "forward") return Phase::forward;
    if (own->op == "backward" || own->op == "recompute") return Phase::backward;
    if (own->op == "optimizer" || own->op == "gradient_norm" || own->op == "clip") return Phase::optimizer;
    return std::nullopt;
  }
  for (const std::string_view word : {"ackward", "bwd", "BWD"}) {
    if (name.find(word) != std::string_view::npos) return Phase::backward;
  }
  for (const std::string_view word : {"Adam", "adam", "multi_tensor_apply"}) {
    if (name.find(word) != std::string_view::npos) return Phase::optimizer;
  }
  for (const std::string_view word : {"orward", "fwd"}) {
    if (name.find(word) != std::string_view::npos) return Phase::forward;
  }
  return std::nullopt;
}

bool is_large(const CollectiveUse& use) { return use.purpose != Purpose::scalars; }

/// Where neither annotations nor kernels tell: reductions are backward's; of the gathers as many are forward's as units
/// are reduced, or half of them.
void phases_by_count(std::vector<CollectiveUse>& uses) {
  std::size_t gathers = 0, reductions = 0;
  for (const CollectiveUse& use : uses) {
    gathers += is_large(use) && use.kind == Communication::all_gather;
    reductions += is_large(use) && use.kind == Communication::reduce_scatter;
  }
  std::size_t forward = gathers <= reductions ? gathers : std::max(reductions, (gathers + 1) / 2);
  if (reductions == 0) forward = gathers;
  // Gathers after the last reduction are of parameters that an optimizer has updated.
  std::size_t last_reduction = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const bool reduces = uses[i].kind == Communication::reduce_scatter || uses[i].kind == Communication::all_reduce;
    if (reduces && is_large(uses[i])) last_reduction = i + 1;
  }
  std::size_t seen = 0;
  bool reduced = false;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    CollectiveUse& use = uses[i];
    if (last_reduction > 0 && i >= last_reduction && use.kind == Communication::all_gather) {
      use.phase = Phase::optimizer;
      continue;
    }
    if (use.kind == Communication::reduce_scatter) {
      use.phase = Phase::backward;
      reduced = true;
    } else if (use.kind == Communication::all_gather && is_large(use)) {
      use.phase = seen++ < forward ? Phase::forward : Phase::backward;
    } else if (use.kind == Communication::all_reduce) {
      // With reductions of another kind it belongs to them; alone it is what data parallel training does in backward.
      use.phase = reduced || reductions == 0 ? Phase::backward : Phase::forward;
    } else {
      use.phase = reduced ? Phase::backward : Phase::forward;
    }
  }
}

/// A collective stands where that stands which computes before and after it in the order of launches. Returns, for
/// each, whether some of backward was launched since the collective before it.
std::vector<bool> find_phases(const RankRows& rank, const JobStep& step, const HostWords& words,
                              std::vector<CollectiveUse>& uses) {
  std::map<std::int32_t, std::size_t> use_of;
  for (std::size_t i = 0; i < uses.size(); ++i) use_of[uses[i].row] = i;
  std::vector<std::optional<Phase>> told(uses.size()), before(uses.size()), after(uses.size());
  std::vector<bool> follows_backward(uses.size());
  bool any = false, backward = false;
  std::optional<Phase> now;
  for (std::int32_t row : step.device) {
    const DeviceRow& device = rank.device[row];
    std::optional<Phase> phase =
        device.phase >= 0 ? std::optional(static_cast<Phase>(device.phase)) : words.phase(device.launch);
    const auto use = use_of.find(row);
    if (use != use_of.end()) {
      told[use->second] = phase;
      before[use->second] = now;
      follows_backward[use->second] = backward;
      backward = false;
      continue;
    }
    if (device.kind != Activity::computation) continue;
    phase = phase_of_row(rank, words, row);
    if (phase) now = phase;
    backward = backward || phase == Phase::backward;
    any = any || phase.has_value();
  }
  if (!any && std::ranges::none_of(told, [](const auto& p) { return p.has_value(); })) {
    phases_by_count(uses);
    return follows_backward;
  }
  now.reset();
  for (auto row = step.device.rbegin(); row != step.device.rend(); ++row) {
    const DeviceRow& device = rank.device[*row];
    const auto use = use_of.find(*row);
    if (use != use_of.end()) {
      after[use->second] = now;
      continue;
    }
    if (device.kind != Activity::computation) continue;
    if (const auto phase = phase_of_row(rank, words, *row)) now = phase;
  }
  for (std::size_t i = 0; i < uses.size(); ++i) {
    CollectiveUse& use = uses[i];
    const bool launched = rank.device[use.row].launch >= 0;
    const bool ends_backward = before[i] == Phase::backward && (!after[i] || after[i] == Phase::optimizer);
    if (told[i]) {
      use.phase = *told[i];
    } else if (words.has_autograd() && launched && after[i] && after[i] != Phase::optimizer && !ends_backward) {
      use.phase = Phase::forward;  // a forward need not have any words
    } else if (use.kind == Communication::reduce_scatter && is_large(use) && after[i] != Phase::forward) {
      use.phase = Phase::backward;
    } else if (before[i] == Phase::backward && (after[i] != Phase::forward)) {
      use.phase = after[i] == Phase::optimizer || !after[i]
                      ? (use.kind == Communication::all_gather ? Phase::optimizer : Phase::backward)
                      : Phase::backward;
    } else if (after[i] == Phase::backward) {
      use.phase = Phase::backward;
    } else if (before[i] == Phase::optimizer && !after[i]) {
      use.phase = Phase::optimizer;
    } else {
      use.phase = Phase::forward;
    }
  }
  return follows_backward;
}

/// A forward after a backward begins another one, also where that backward has no collectives (no_sync). `passes`: see
/// count_passes(): whole microbatches may have none.
void count_microbatches(std::vector<CollectiveUse>& uses, const std::vector<bool>& follows_backward,
                        const std::vector<int>& passes) {
  int micro = 0;
  bool any = false, backward = false;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    CollectiveUse& use = uses[i];
    backward = backward || follows_backward[i];
    if (is_large(use)) {
      if (any && backward && use.phase == Phase::forward) ++micro;
      any = true;
      backward = use.phase == Phase::backward;
      micro = std::max(micro, passes[i]);
    }
    use.micro = micro;
  }
}

/// Whether a group's description says that its ranks split layers: "mesh_tp" of a DeviceMesh.
bool splits_layers(const RankRows& rank, std::int32_t group) {
  if (group < 0) return false;
  const std::string& description = rank.groups[group].description;
  return description == "tp" || description.ends_with("_tp") ||
         description.find("TENSOR_MODEL_PARALLEL") != description.npos;
}

/// The group that reduces most gradients is the one that shards.
std::int32_t sharding_group(const RankRows& rank, const std::vector<CollectiveUse>& uses) {
  std::map<std::int32_t, std::int64_t> reduced;
  for (const CollectiveUse& use : uses) {
    if (use.kind == Communication::reduce_scatter && use.phase == Phase::backward && is_large(use) &&
        !splits_layers(rank, use.group)) {
      reduced[use.group] += std::max<std::int64_t>(use.elements, 1);
    }
  }
  std::int32_t best = -1;
  for (const auto& [group, elements] : reduced) {
    if (best < 0 || elements > reduced[best]) best = group;
  }
  return best;
}

/// Some engines have ranges around each of their collectives. Gathers and reductions outside of them are of layers that
/// are split, or, after backward, of the norm of gradients.
void find_others_uses(const RankRows& rank, const HostWords& words, std::vector<CollectiveUse>& uses) {
  for (const dialects::Words* engine : dialects::words_in_traces()) {
    const dialects::TraceNames& names = engine->traces;
    if (names.forward_prefetch.empty()) continue;
    const auto within = [&](const CollectiveUse& use) {
      const std::int32_t launch = rank.device[use.row].launch;
      return std::ranges::any_of(names.parts, [&](std::string_view part) { return words.around(launch, part) >= 0; });
    };
    const auto is_own_kind = [](const CollectiveUse& use) {
      return use.kind == Communication::all_gather || use.kind == Communication::reduce_scatter;
    };
    const auto own = std::ranges::count_if(uses, [&](const auto& use) { return is_own_kind(use) && within(use); });
    if (own == 0 || own * 2 < std::ranges::count_if(uses, is_own_kind)) continue;
    bool more_backward = false;  // the engine's, between this collective and the next forward
    for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
      if (within(*use)) {
        more_backward = use->phase == Phase::backward;
      } else if (is_large(*use) && (is_own_kind(*use) || use->kind == Communication::all_reduce)) {
        use->purpose = use->phase == Phase::forward || more_backward ? Purpose::activations : Purpose::scalars;
      }
    }
    return;
  }
}

/// Whether rows of tokens go to experts: names of a router, of grouped products or of experts say so, or of tables that
/// are split alike; or ranks exchange counts, or more in one exchange than in another; or a unit has two
/// parameter groups.
bool exchanges_for_experts(const RankRows& rank, const HostWords& words, const std::vector<CollectiveUse>& uses) {
  static constexpr std::string_view kWords[] = {"expert",
                                                "Expert",
                                                "router",
                                                "Router",
                                                "topk",
                                                "TopK",
                                                "moe",
                                                "MoE",
                                                "MOE",
                                                "grouped",
                                                "Grouped",
                                                "group_gemm",
                                                "GroupProblem",
                                                "permute_token",
                                                "deep_ep",
                                                "dispatch_",
                                                "dlrm",
                                                "torchrec",
                                                "EmbeddingBag",
                                                "embedding_bag",
                                                "split_embedding_",
                                                "TableBatchedEmbedding"};
  for (const std::string& name : rank.names) {
    if (std::ranges::any_of(kWords, [&](std::string_view word) { return name.find(word) != std::string::npos; })) {
      return true;
    }
  }
  std::map<std::pair<int, std::string>, int> gathers;  // of forward, by microbatch and unit
  std::int64_t elements = -1;
  for (const CollectiveUse& use : uses) {
    if (use.kind == Communication::all_gather && use.phase == Phase::forward) {
      const auto unit = words.unit(rank.device[use.row].launch);
      if (unit && ++gathers[{use.micro, *unit}] > 1) return true;  // experts under the name of their block
    }
    if (use.kind != Communication::all_to_all) continue;
    const DeviceRow& row = rank.device[use.row];
    const std::string& name = rank.names[row.name];
    if (dialects::own_name(name) || (row.launch >= 0 && communication_of_kernel(name) == Communication::all_to_all)) {
      return true;  // a library of such exchanges, or this program, which has no others
    }
    if (row.collective < 0) continue;
    const CollectiveFacts& facts = rank.collectives[row.collective];
    const bool uneven = facts.elements_in >= 0 && facts.elements_out >= 0 && facts.elements_in != facts.elements_out;
    if (uneven || (elements >= 0 && use.elements >= 0 && use.elements != elements)) return true;
    elements = std::max(elements, use.elements);
  }
  return false;
}

void find_purposes(const RankRows& rank, const HostWords& words, std::vector<CollectiveUse>& uses) {
  const std::int32_t shard = sharding_group(rank, uses);
  std::map<std::int32_t, bool> scatters_forward, exchanges_forward;
  bool scatters = false, exchanges = false;
  for (const CollectiveUse& use : uses) {
    if (use.kind == Communication::reduce_scatter && is_large(use)) {
      scatters = true;
      scatters_forward[use.group] = scatters_forward[use.group] || use.phase == Phase::forward;
    }
    if (use.kind == Communication::all_to_all) exchanges = exchanges || use.phase == Phase::forward;
  }
  const bool for_experts = exchanges && exchanges_for_experts(rank, words, uses);
  for (CollectiveUse& use : uses) {
    if (use.purpose != Purpose::unknown) continue;
    switch (use.kind) {
      case Communication::all_gather:
        use.purpose = scatters_forward[use.group] ? Purpose::activations : Purpose::parameters;
        break;
      case Communication::reduce_scatter:
        use.purpose = scatters_forward[use.group] ? Purpose::activations : Purpose::gradients;
        break;
      case Communication::all_reduce: {
        if (use.phase == Phase::forward) {
          use.purpose = Purpose::activations;
        } else if (use.phase == Phase::optimizer) {
          use.purpose = scatters ? Purpose::unknown : Purpose::gradients;
        } else {
          const bool other = scatters && use.group != shard;
          use.purpose = other || (scatters && use.group < 0) ? Purpose::replicas : Purpose::gradients;
        }
        break;
      }
      case Communication::all_to_all:
        use.purpose = !exchanges ? Purpose::gradients : for_experts ? Purpose::experts : Purpose::activations;
        break;
      case Communication::send:
      case Communication::receive: use.purpose = Purpose::pipeline; break;
      case Communication::broadcast:  // each rank gives away the parameters that it has updated: ZeRO-1
        if (use.phase == Phase::optimizer) use.purpose = Purpose::parameters;
        break;
      default: break;
    }
    if (splits_layers(rank, use.group)) use.purpose = Purpose::activations;
  }
  // All-reduces of layers' activations come in forward and in backward; those of backward have the sizes of forward's.
  std::map<std::pair<std::int32_t, std::int64_t>, int> in_forward;
  for (const CollectiveUse& use : uses) {
    if (use.kind == Communication::all_reduce && use.phase == Phase::forward && is_large(use)) {
      ++in_forward[{use.group, use.elements}];
    }
  }
  for (CollectiveUse& use : uses) {
    if (use.purpose == Purpose::gradients && use.kind == Communication::all_reduce &&
        in_forward.contains({use.group, use.elements})) {
      use.purpose = Purpose::activations;
    }
  }
}

/// As many to the element, or not told; roughly: quantised numbers come with their scales.
bool alike(std::int64_t a, std::int64_t b, bool exactly = true) {
  if (a < 0 || b < 0 || a == b) return true;
  if (exactly) return false;
  return std::abs(a - b) * 50 <= std::max(a, b);
}

/// Units of one microbatch from order and sizes.
class ByOrder {
 public:
  /// `uses`: of the microbatch, and of others.
  ByOrder(UnitTable& table, bool fill, const std::vector<CollectiveUse>& uses, int micro) : table_(table), fill_(fill) {
    for (const CollectiveUse& use : uses) {
      if (use.micro != micro || use.purpose != Purpose::gradients) continue;
      (use.kind == Communication::all_to_all ? exchanges_ : reductions_seen_) += 1;
      reduced_elements_ = use.elements < 0 || reduced_elements_ < 0 ? -1 : reduced_elements_ + use.elements;
    }
  }

  void assign(CollectiveUse& use) {
    if (use.purpose == Purpose::parameters) {
      use.unit = use.phase == Phase::forward ? forward(use) : use.phase == Phase::backward ? again(use) : -1;
    } else if (use.purpose == Purpose::gradients) {
      use.unit = reduced(use);
      last_reduced_ = use.unit;
    } else if (use.purpose == Purpose::replicas) {
      use.unit = last_reduced_;
    }
  }

 private:
  int forward(const CollectiveUse& use) {
    // All that is gathered once is reduced: what goes beyond that is a unit's second gather, ahead of backward.
    const bool again_already = exchanges_ > 0 ? forward_ >= (exchanges_ + 1) / 2
                                              : reductions_seen_ > 0 && reduced_elements_ >= 0 && use.elements >= 0 &&
                                                    gathered_elements_ + use.elements > reduced_elements_;
    if (forward_ > 0 && again_already) return again(use);
    gathered_elements_ += use.elements;
    const int place = forward_++;
    if (fill_) table_.units.push_back({.label = std::to_string(place), .elements = use.elements, .bytes = use.bytes});
    if (place < static_cast<int>(table_.units.size())) return place;
    return -1;
  }

  /// The nearest unit in the order of backward that has as many elements and was not yet taken.
  int nearest(const CollectiveUse& use, std::vector<bool>& taken) {
    const int n = static_cast<int>(table_.units.size());
    taken.resize(static_cast<std::size_t>(n), false);
    for (const int pass : {0, 1, 2}) {
      for (int unit = n - 1; unit >= 0; --unit) {
        if (taken[unit]) continue;
        if (pass < 2 && !alike(table_.units[unit].elements, use.elements, pass == 0)) continue;
        taken[unit] = true;
        return unit;
      }
    }
    return -1;
  }
  int again(const CollectiveUse& use) { return nearest(use, gathered_); }

  int reduced(const CollectiveUse& use) {
    const int n = static_cast<int>(table_.units.size());
    if (fill_ && forward_ == 0) table_.of_gathers = false;
    if (!table_.of_gathers) {
      const int place = reductions_++;
      if (fill_) table_.units.push_back({.label = std::to_string(place), .elements = use.elements, .bytes = use.bytes});
      return place < static_cast<int>(table_.units.size()) ? place : -1;
    }
    if (use.kind == Communication::all_to_all) return n - 1 - exchanged_++ / 2;  // within nodes, then across them
    reduced_.resize(static_cast<std::size_t>(n), false);
    for (int unit = n - 1; unit >= 0; --unit) {
      if (!reduced_[unit] && alike(table_.units[unit].elements, use.elements)) {
        reduced_[unit] = true;
        return unit;
      }
    }
    // A bucket: neighbours that add up to it, named by the first that backward reaches.
    std::int64_t sum = 0;
    int first = -1;
    for (int unit = n - 1; unit >= 0; --unit) {
      if (reduced_[unit]) continue;
      const std::int64_t elements = table_.units[unit].elements;
      if (first >= 0 && use.elements >= 0 && sum + elements > use.elements + use.elements / 50) break;
      first = first < 0 ? unit : first;
      sum += std::max<std::int64_t>(elements, 0);
      reduced_[unit] = true;
      if (use.elements < 0) break;
    }
    return first;
  }

  UnitTable& table_;
  bool fill_;
  int exchanges_ = 0, reductions_seen_ = 0, exchanged_ = 0;
  std::int64_t reduced_elements_ = 0, gathered_elements_ = 0;
  int forward_ = 0, reductions_ = 0, last_reduced_ = -1;
  std::vector<bool> gathered_, reduced_;
};

/// "{0,1}" names a bucket by its first unit; "T" is a unit like others.
std::string first_of_bucket(std::string_view label) {
  if (label.starts_with('{')) label = label.substr(1, label.find_first_of(",}") - 1);
  return std::string(label);
}

std::optional<std::string> named_unit(const RankRows& rank, const HostWords& words, const CollectiveUse& use,
                                      UnitSource& source) {
  const DeviceRow& row = rank.device[use.row];
  if (const auto own = dialects::own_name(rank.names[row.name]); own && !own->unit.empty()) {
    source = UnitSource::own_names;
    const std::string label = first_of_bucket(own->unit);
    return label == "R" ? "root" : label;
  }
  if (auto unit = words.unit(row.launch)) {
    source = UnitSource::annotations;
    return unit->empty() ? "root" : *unit;
  }
  return std::nullopt;
}

/// Parts that are gathered in forward under one name.
struct GatheredParts {
  std::map<std::int64_t, std::int64_t> elements;  // by ranks
  bool twice = false;                             // one group of ranks gathers it several times in a forward
};

/// See [Note: experts under the name of their block]. Names of what is experts get kOfExperts behind them.
constexpr std::string_view kOfExperts = " (experts)";

void name_experts(const RankRows& rank, const std::vector<CollectiveUse>& uses,
                  std::vector<std::optional<std::string>>& labels, UnitTable& table, bool fill) {
  std::map<std::string, GatheredParts> parts;
  if (fill) {
    std::map<std::tuple<std::string, int, std::int64_t>, int> times;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (!labels[i] || uses[i].purpose != Purpose::parameters || uses[i].phase != Phase::forward) continue;
      const std::int64_t ranks = gathering_ranks(rank, uses[i]);
      GatheredParts& part = parts[*labels[i]];
      part.elements.try_emplace(ranks, uses[i].elements);
      part.twice = part.twice || ++times[{*labels[i], uses[i].micro, ranks}] > 1;
    }
  } else {
    for (const FoundUnit& unit : table.units) {
      if (unit.experts_of < 0) continue;
      const FoundUnit& block = table.units[unit.experts_of];
      if (unit.label != block.label + std::string(kOfExperts)) continue;
      parts[block.label].elements = {{unit.ranks, unit.elements}, {block.ranks, block.elements}};
    }
  }
  std::map<std::string, bool> last_reduced;  // whether that was the experts
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (!labels[i]) continue;
    const auto found = parts.find(*labels[i]);
    if (found == parts.end()) continue;
    const GatheredParts& part = found->second;
    if (fill && part.twice && part.elements.size() == 1 &&
        !std::ranges::all_of(part.elements, [](const auto& one) { return one.first > 0; })) {
      table.mixes_parts = true;
    }
    if (part.elements.size() != 2 || part.elements.begin()->first == 0) continue;
    const auto [ranks_few, of_experts] = *part.elements.begin();
    const auto [ranks_many, of_block] = *part.elements.rbegin();
    const std::int64_t ranks = gathering_ranks(rank, uses[i]);
    bool experts = ranks == ranks_few;
    if (uses[i].purpose == Purpose::replicas) {
      experts = last_reduced[*labels[i]];
    } else if (uses[i].elements >= 0 && of_experts != of_block) {
      if (uses[i].elements == of_experts) experts = true;
      if (uses[i].elements == of_block) experts = false;
    }
    if (uses[i].purpose == Purpose::gradients) last_reduced[*labels[i]] = experts;
    if (experts) *labels[i] += kOfExperts;
  }
}

/// Units that are gathered by fewer ranks than the unit that is around them: experts of its block.
void find_experts(UnitTable& table) {
  for (FoundUnit& unit : table.units) {
    const std::string_view label = unit.label;
    int best = -1;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < table.units.size(); ++i) {
      const FoundUnit& other = table.units[i];
      const std::string_view around = other.label;
      const bool own = table.source == UnitSource::own_names && label == fmt::format("E{}", around);
      const bool within = label.starts_with(around) && label.size() > around.size() &&
                          (label[around.size()] == '.' || label.substr(around.size()) == kOfExperts);
      const bool fewer = unit.ranks > 0 && other.ranks > unit.ranks && other.ranks % unit.ranks == 0;
      if (!(own || (within && fewer)) || around.empty() || around.size() < longest) continue;
      best = static_cast<int>(i);
      longest = around.size();
    }
    unit.experts_of = best;
  }
}

}  // namespace

int UnitTable::experts() const {
  return static_cast<int>(std::ranges::count_if(units, [](const FoundUnit& unit) { return unit.experts_of >= 0; }));
}

std::string_view to_string(Purpose purpose) {
  static constexpr EnumNames<Purpose> kNames{"parameters", "gradients", "replicas", "activations",
                                             "experts",    "scalars",   "pipeline", "unknown"};
  return kNames[purpose];
}

std::int64_t gathering_ranks(const RankRows& rank, const CollectiveUse& use) {
  if (use.group >= 0 && rank.groups[use.group].size > 0) return rank.groups[use.group].size;
  const std::int32_t facts = rank.device[use.row].collective;
  if (facts < 0 || (use.kind != Communication::all_gather && use.kind != Communication::reduce_scatter)) return 0;
  const CollectiveFacts& told = rank.collectives[facts];
  const std::int64_t part = std::min(told.elements_in, told.elements_out);
  return part > 0 ? std::max(told.elements_in, told.elements_out) / part : 0;
}

std::optional<Phase> phase_of_row(const RankRows& rank, const HostWords& words, std::int32_t row) {
  const DeviceRow& device = rank.device[row];
  if (device.phase >= 0) return static_cast<Phase>(device.phase);
  const auto told = words.phase(device.launch);
  return told ? told : phase_of_kernel(rank.names[device.name]);
}

int bytes_of_dtype(std::string_view dtype) {
  static const std::map<std::string_view, int> kBytes{
      {"Float", 4},         {"BFloat16", 2},      {"Half", 2},      {"Double", 8},      {"Int", 4},
      {"Long", 8},          {"Byte", 1},          {"Bool", 1},      {"Short", 2},       {"Char", 1},
      {"Float8_e4m3fn", 1}, {"c10::BFloat16", 2}, {"c10::Half", 2}, {"Float8_e5m2", 1}, {"ComplexFloat", 8},
      {"float", 4},         {"double", 8},        {"int", 4},       {"long int", 8},    {"unsigned char", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? hlo_bytes(dtype) : found->second;
}

std::vector<CollectiveUse> find_collectives(const RankRows& rank, const JobStep& step, const HostWords& words) {
  std::vector<CollectiveUse> uses;
  for (std::int32_t row : step.device) {
    const DeviceRow& device = rank.device[row];
    if (device.kind != Activity::collective) continue;
    CollectiveUse use;
    use.row = row;
    std::int64_t part = -1;
    if (device.collective >= 0) {
      const CollectiveFacts& facts = rank.collectives[device.collective];
      use.kind = facts.kind;
      use.group = facts.group;
      const bool scatters = facts.kind == Communication::reduce_scatter;
      use.elements = scatters ? facts.elements_in : std::max(facts.elements_in, facts.elements_out);
      part = scatters ? facts.elements_out : facts.elements_in;
      if (const int size = bytes_of_dtype(facts.dtype); size > 0 && use.elements >= 0) use.bytes = use.elements * size;
    }
    const auto own = dialects::own_name(rank.names[device.name]);
    const bool few = part >= 0 && part <= kFewElements && !words.unit(device.launch);  // a norm may be a unit
    if (few || use.kind == Communication::barrier || (own && own->op == "gather_norm") ||
        words.around(device.launch, "clip_grad_norm") >= 0) {
      use.purpose = Purpose::scalars;
    }
    use.prefetch = (own && own->prefetch) || words.prefetches(device.launch);
    uses.push_back(use);
  }
  const std::vector<bool> follows_backward = find_phases(rank, step, words, uses);
  find_others_uses(rank, words, uses);
  std::vector<int> passes;
  count_passes(rank, step, words, uses, &passes);
  if (!rank.is_compiled()) count_microbatches(uses, follows_backward, passes);
  find_purposes(rank, words, uses);
  return uses;
}

int count_passes(const RankRows& rank, const JobStep& step, const HostWords& words,
                 const std::vector<CollectiveUse>& uses, std::vector<int>* before) {
  if (rank.is_compiled()) return 0;
  std::vector<std::int8_t> products(rank.names.size(), -1);  // by name: there are fewer names than rows
  const auto is_product = [&](std::int32_t name) {
    std::int8_t& known = products[name];
    if (known < 0) known = is_matrix_product(rank.names[name]);
    return known > 0;
  };
  int passes = 0, with_backward = 0;  // the last forward may be an evaluation's
  bool backward = false;
  std::size_t next = 0;
  for (const std::int32_t index : step.device) {
    const DeviceRow& row = rank.device[index];
    if (next < uses.size() && uses[next].row == index) {
      if (before != nullptr) before->push_back(passes);
      ++next;
    } else if (words.has_autograd() && row.kind == Activity::computation && row.launch >= 0) {
      const auto phase = words.phase(row.launch);
      if (phase == Phase::backward) {
        backward = true;
        with_backward = passes;
      } else if (phase != Phase::optimizer && backward && is_product(row.name)) {
        ++passes;
        backward = false;
      }
    }
  }
  return with_backward;
}

void assign_units(const RankRows& rank, const HostWords& words, std::vector<CollectiveUse>& uses, UnitTable& table) {
  const bool fill = table.units.empty();
  std::size_t wanted = 0, named = 0;
  std::vector<std::optional<std::string>> labels(uses.size());
  UnitSource source = UnitSource::order;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const Purpose purpose = uses[i].purpose;
    if (purpose != Purpose::parameters && purpose != Purpose::gradients && purpose != Purpose::replicas) continue;
    ++wanted;
    labels[i] = named_unit(rank, words, uses[i], source);
    named += labels[i].has_value();
  }
  if (wanted > 0 && named * 10 >= wanted * 9 && (fill || table.source != UnitSource::order)) {
    if (fill) table.source = source;
    name_experts(rank, uses, labels, table, fill);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      if (!labels[i]) continue;
      auto unit = std::ranges::find(table.units, *labels[i], &FoundUnit::label);
      if (unit == table.units.end()) {
        if (!fill) continue;
        unit = table.units.insert(unit, FoundUnit{.label = *labels[i]});
      }
      if (fill && uses[i].purpose == Purpose::parameters) {
        unit->elements = std::max(unit->elements, uses[i].elements);
        unit->bytes = std::max(unit->bytes, uses[i].bytes);
        unit->ranks = std::max(unit->ranks, gathering_ranks(rank, uses[i]));
      } else if (fill && unit->elements < 0) {
        unit->elements = uses[i].elements;
        unit->bytes = uses[i].bytes;
      }
      uses[i].unit = static_cast<int>(unit - table.units.begin());
    }
    if (fill) {
      const auto root = std::ranges::find(table.units, "root", &FoundUnit::label);
      table.root = root == table.units.end() ? -1 : static_cast<int>(root - table.units.begin());
      find_experts(table);
    }
    return;
  }
  int micro = -1;
  std::optional<ByOrder> by_order;
  for (CollectiveUse& use : uses) {
    if (use.micro != micro) {
      micro = use.micro;
      by_order.emplace(table, fill && table.units.empty(), uses, micro);
    }
    by_order->assign(use);
  }
  if (!fill || table.units.size() < 2) return;
  // The root is gathered first and reduced last, if not in a bucket with others.
  if (!table.of_gathers) return;
  const CollectiveUse* last = nullptr;
  for (const CollectiveUse& use : uses) {
    if (use.purpose == Purpose::gradients) last = &use;
  }
  const bool other_last = last != nullptr && last->unit > 0 &&
                          alike(table.units[last->unit].elements, last->elements) &&
                          !alike(table.units[0].elements, last->elements);
  if (other_last) return;
  table.root = 0;
  table.units[0].label = "root";
  for (std::size_t i = 1; i < table.units.size(); ++i) table.units[i].label = std::to_string(i - 1);
}

}  // namespace fsdpbench::foreign
