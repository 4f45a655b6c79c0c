#include "foreign/recognise.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/enum_table.h"
#include "base/error.h"
#include "config/fields.h"
#include "config/words/fsdpbench.h"
#include "foreign/checkpointing.h"
#include "foreign/host_words.h"
#include "foreign/job_kind.h"
#include "foreign/kineto_names.h"
#include "foreign/serialised.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;

/// The step that speaks for the others: the middle one of those that have the usual number of collectives.
std::size_t usual_step(const RecognisedRank& rank) {
  std::map<std::size_t, int> sizes;
  for (const auto& uses : rank.uses) ++sizes[uses.size()];
  std::size_t usual = 0;
  int most = 0;
  for (const auto& [size, count] : sizes) {
    if (count >= most) usual = size;
    most = std::max(most, count);
  }
  std::vector<std::size_t> with;
  for (std::size_t i = 0; i < rank.uses.size(); ++i) {
    if (rank.uses[i].size() == usual) with.push_back(i);
  }
  return with.empty() ? 0 : with[with.size() / 2];
}

/// Ranks of the groups that carry most of what `uses` for `purpose` do, experts' left out.
int group_ranks(const RankRows& rank, const UnitTable& table, const std::vector<CollectiveUse>& uses, Purpose purpose,
                std::optional<Phase> phase = std::nullopt) {
  std::map<int, std::int64_t> elements;
  for (const CollectiveUse& use : uses) {
    if (use.purpose != purpose || (phase && use.phase != *phase) || table.is_experts(use.unit)) continue;
    const std::int64_t size = gathering_ranks(rank, use);
    if (size > 0) elements[static_cast<int>(size)] += std::max<std::int64_t>(use.elements, 1);
  }
  int best = 0;
  std::int64_t most = 0;
  for (const auto& [size, sum] : elements) {
    if (sum > most) best = size;
    most = std::max(most, sum);
  }
  return best;
}

DType dtype_of(const RankRows& rank, const std::vector<CollectiveUse>& uses, Purpose purpose) {
  for (const CollectiveUse& use : uses) {
    const std::int32_t facts = rank.device[use.row].collective;
    if (use.purpose != purpose || facts < 0) continue;
    const std::string& name = rank.collectives[facts].dtype;
    if (bytes_of_dtype(name) == 2) return DType::bf16;
    if (!name.empty()) return DType::f32;
  }
  return DType::f32;
}

/// Waits of the host for the whole device or a stream, which no schedule of ours has: an .item(), a print.
std::vector<HostSync> find_syncs(const RankRows& rank, const HostWords& words, const JobStep& step) {
  std::vector<HostSync> syncs;
  std::int64_t begin = launched_ns(rank, step.device.front()), end = launched_ns(rank, step.device.back());
  for (std::size_t i = 0; i < rank.host.size(); ++i) {
    const HostRow& row = rank.host[i];
    if (row.kind != HostWork::synchronise || row.begin_ns < begin || row.begin_ns > end) continue;
    const std::string& name = rank.names[row.name];
    if (name.find("Event") != std::string::npos) continue;  // limits wait for events
    const auto phase = words.phase(static_cast<std::int32_t>(i));
    if (phase == Phase::optimizer) continue;
    std::string where = phase == Phase::backward ? "backward" : "forward";
    for (std::int32_t at = row.parent; at >= 0; at = rank.host[at].parent) {
      const HostRow& around = rank.host[at];
      if (around.kind != HostWork::op) continue;
      where += ", in " + rank.names[around.name];
      break;
    }
    syncs.push_back({0, 0, static_cast<std::int32_t>(i), where});
  }
  return syncs;
}

/// Where nothing names the units and the kinds of all collectives are as a schedule has them, its units are theirs.
void take_units(const JobTrace& job, Recognition& r) {
  for (std::size_t i = 0; i < r.ranks.size(); ++i) {
    RecognisedRank& rank = r.ranks[i];
    for (std::size_t s = 0; s < rank.uses.size(); ++s) {
      const JobStep& step = rank.cut.steps[s];
      const auto order = launch_order(job.ranks[i], step, rank.uses[s], r.table, rank.compute_stream, false);
      std::vector<LaunchToken> other = r.schedule->order;
      for (LaunchToken& token : other) token.unit = -1;
      const OrderDifference difference = compare_orders(order, other);
      std::map<std::int32_t, int> units;
      bool all = true;
      for (std::size_t k = 0; k < order.size(); ++k) {
        if (order[k].what == LaunchToken::What::computation) continue;
        const int to = difference.to_other[k];
        all = all && to >= 0;
        if (to < 0) continue;
        units[step.device[order[k].begin]] = table_unit(r.table, r.schedule->order[to].unit);
      }
      if (!all) continue;
      for (CollectiveUse& use : rank.uses[s]) {
        if (const auto unit = units.find(use.row); unit != units.end()) use.unit = unit->second;
      }
    }
  }
}

std::string order_line(const std::vector<LaunchToken>& order, int modules, std::size_t most) {
  std::string line;
  std::size_t shown = 0;
  for (const LaunchToken& token : order) {
    if (token.what == LaunchToken::What::computation) continue;
    if (shown++ == most) return line + " …";
    line += (line.empty() ? "" : " ") + token_name(token, modules);
  }
  return line;
}

std::string value_text(const config::Value& value) {
  const std::string* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : config::to_toml(value);
}

std::string setting_text(const config::RunConfig& config, std::string_view key) {
  return value_text(config::find_field(key)->write(config));
}

/// The size of the group whose description ends in one of `words`, as a DeviceMesh calls that of its dimension
/// ("mesh_shard"); 0: none.
int described_ranks(const RankRows& rank, std::initializer_list<std::string_view> words) {
  for (const Group& group : rank.groups) {
    for (const std::string_view word : words) {
      const std::string_view description = group.description;
      const bool is = description == word ||
                      (description.ends_with(word) && description[description.size() - word.size() - 1] == '_');
      if (is && group.size > 0) return static_cast<int>(group.size);
    }
  }
  return 0;
}

/// Sizes of collectives and of their groups, then descriptions of groups, then the number of ranks.
void find_mesh(const JobTrace& job, const std::vector<CollectiveUse>& uses, Recognition& r) {
  const RankRows& rank = job.ranks.front();
  TrainingFacts& facts = r.facts;
  const bool twice = std::ranges::any_of(uses, [](const auto& u) { return u.purpose == Purpose::replicas; });
  const bool split = std::ranges::any_of(uses, [](const auto& u) { return u.purpose == Purpose::activations; });
  const int world = rank.world_size.value_or(static_cast<int>(job.ranks.size()));
  const auto first_of = [](std::initializer_list<int> told) {
    const auto one = std::ranges::find_if(told, [](int ranks) { return ranks > 0; });
    return one == told.end() ? 0 : *one;
  };
  const int gathers = group_ranks(rank, r.table, uses, Purpose::parameters, Phase::forward);
  const int reduces = group_ranks(rank, r.table, uses, Purpose::gradients);
  int shard =
      first_of({gathers > 1 ? gathers : 0, reduces > 1 ? reduces : 0, described_ranks(rank, {"shard", "fsdp"})});
  int replicate =
      twice ? first_of({group_ranks(rank, r.table, uses, Purpose::replicas), described_ranks(rank, {"replicate"})}) : 1;
  const int tensor = split ? described_ranks(rank, {"tp", "tensor"}) : 1;
  r.mesh_told = shard > 1;
  if (shard <= 0 && replicate > 0 && tensor > 0 && world % (replicate * tensor) == 0) {
    shard = world / (replicate * tensor);
    r.mesh_told = shard > 1 && rank.world_size.has_value() && !rank.groups.empty();
  }
  if (shard > 1 && replicate <= 0 && tensor > 0 && world % (shard * tensor) == 0) replicate = world / (shard * tensor);
  if (shard <= 0 || replicate <= 0) {  // two replicas at least where gradients are reduced twice
    r.mesh_told = false;
    replicate = twice && world % 2 == 0 ? 2 : 1;
    shard = std::max(2, world / replicate);
    if (twice) {
      r.unknown.push_back("How many of the ranks are replicas: groups and sizes of collectives are not in the trace.");
    }
  }
  facts.shard = shard;
  facts.replicate = replicate;
  facts.backward_shard = group_ranks(rank, r.table, uses, Purpose::parameters, Phase::backward);
  // reshard_after_forward=N makes a mesh whose dimensions have no names, of which a job with replicas may have one,
  // too.
  if (facts.backward_shard <= 0 && !twice && !rank.groups.empty()) {
    const int within = described_ranks(rank, {"mesh_dim_1"});
    const bool may_be_within = std::ranges::any_of(rank.groups, [&](const Group& group) {
      return group.size > 1 && group.size < shard && !group.description.starts_with("mesh_");
    });
    if (within > 1 && within < shard) {
      facts.backward_shard = within;
    } else if (!may_be_within) {
      facts.backward_shard = shard;
    }
  }
  r.backward_mesh_told = facts.backward_shard > 0;
}

void find_training_facts(const JobTrace& job, const HostWords& words, Recognition& r) {
  const RankRows& rank = job.ranks.front();
  const std::vector<CollectiveUse>& uses = r.ranks.front().uses[r.reference_step];
  TrainingFacts& facts = r.facts;
  if (r.table.units.size() == 1) r.table.root = -1;  // the one unit there is
  facts.root = r.table.root >= 0;
  facts.units = static_cast<int>(r.table.units.size()) - r.table.experts() - (facts.root ? 1 : 0);
  if (facts.root) facts.root_elements = r.table.units[r.table.root].elements;
  std::map<std::int64_t, int> sizes;
  for (std::size_t i = 0; i < r.table.units.size(); ++i) {
    if (const int unit = static_cast<int>(i); unit != r.table.root && !r.table.is_experts(unit))
      ++sizes[r.table.units[i].elements];
  }
  int most = 0;
  for (const auto& [size, count] : sizes) {
    if (count >= most) facts.unit_elements = size;
    most = std::max(most, count);
  }
  find_mesh(job, uses, r);
  int again = 0;
  bool root_again = false, first_reduces = false, first_replicates = false;
  std::int32_t gathers_on = -1, reduces_on = -1;
  int last_micro = 0;
  for (const CollectiveUse& use : uses) {
    if (use.phase == Phase::backward) last_micro = std::max(last_micro, use.micro);  // else an evaluation
    if (r.table.is_experts(use.unit)) continue;
    if (use.purpose == Purpose::parameters) {
      again += use.phase == Phase::backward;
      if (use.phase == Phase::forward && gathers_on < 0) gathers_on = use.group;
      root_again = root_again || (use.phase == Phase::backward && use.unit == r.table.root && facts.root);
    }
    if (use.purpose == Purpose::gradients && use.kind == Communication::reduce_scatter) reduces_on = use.group;
    first_reduces = first_reduces || (use.micro == 0 && use.purpose == Purpose::gradients);
    first_replicates = first_replicates || (use.micro == 0 && use.purpose == Purpose::replicas);
  }
  facts.reshards = again > 0;
  facts.root_reshards = root_again;
  facts.accumulate =
      1 + std::max(last_micro, count_passes(rank, r.ranks.front().cut.steps[r.reference_step], words, uses));
  facts.accumulate_mode = !first_reduces                             ? config::AccumulateMode::no_sync
                          : facts.replicate > 1 && !first_replicates ? config::AccumulateMode::reduce_scatter_only
                                                                     : config::AccumulateMode::reduce_each;
  facts.separate_reductions = gathers_on >= 0 && reduces_on >= 0 && gathers_on != reduces_on &&
                              rank.groups[gathers_on].size == rank.groups[reduces_on].size;
  facts.param_dtype = dtype_of(rank, uses, Purpose::parameters);
  facts.reduce_dtype = dtype_of(rank, uses, Purpose::gradients);
}

/// Ranks that split the experts of each block, where these are gathered apart from the rest. False: what is known of
/// them fits no plan, and r.unknown says why.
bool find_expert_mesh(const RankRows& rank, const std::vector<CollectiveUse>& uses, Recognition& r) {
  const auto refuse = [&](std::string why) {
    r.unknown.push_back("Which schedule the job follows: " + std::move(why) + ".");
    return false;
  };
  if (r.kind == JobKind::experts && r.table.source == UnitSource::order) {
    return refuse(
        "ranks exchange rows of experts, and nothing names the units that are gathered, so experts are not "
        "told from the rest of their blocks");
  }
  if (r.table.mixes_parts) {
    return refuse(
        "units are gathered several times in one forward, as blocks are whose experts are split over other "
        "ranks, and the groups of collectives are not in the trace");
  }
  const int experts = r.table.experts();
  if (experts == 0) return true;
  TrainingFacts& facts = r.facts;
  std::int64_t ranks = 0;
  for (const FoundUnit& unit : r.table.units) {
    if (unit.experts_of < 0) continue;
    if (ranks > 0 && unit.ranks != ranks)
      return refuse("experts of some blocks are split over more ranks than others'");
    ranks = unit.ranks;
  }
  if (ranks <= 0 || facts.shard % ranks != 0) {
    return refuse(fmt::format("{} ranks gather the experts of a block and {} the rest of it", ranks, facts.shard));
  }
  const std::int64_t exchange = group_ranks(rank, r.table, uses, Purpose::experts);
  if (exchange > 0 && exchange * ranks != facts.shard) {
    return refuse(fmt::format("rows of experts are exchanged within groups of {} ranks, and {} of {} gather them",
                              exchange, ranks, facts.shard));
  }
  // A last unit of norm and head has none.
  if (experts != facts.units && experts + 1 != facts.units) {
    return refuse(
        fmt::format("{} of {} units have experts that are split over fewer ranks; all blocks have, in the "
                    "schedules that are known",
                    experts, facts.units));
  }
  facts.expert = static_cast<int>(facts.shard / ranks);
  return true;
}

/// The limit, as the host's waits tell it; the order of launches has none of them.
void find_limit(const JobTrace& job, const JobWords& words, Recognition& r) {
  using Limit = config::AllGatherLimit::Mode;
  const RankRows& rank = job.ranks.front();
  const JobStep& step = r.ranks.front().cut.steps[r.reference_step];
  const std::int64_t begin = launched_ns(rank, step.device.front()), end = launched_ns(rank, step.device.back());
  int event_waits = 0;
  for (const HostRow& row : rank.host) {
    if (row.kind != HostWork::synchronise || row.begin_ns < begin || row.begin_ns > end) continue;
    event_waits += rank.names[row.name].find("Event") != std::string::npos;
  }
  config::AllGatherLimit& limit = r.schedule->config.fsdp.all_gather_limit;
  Finding found{"all-gather limit", "", "", 0};
  const bool ranged = r.facts.prefetch.has_value();  // the engine's ranges are around all that is gathered
  if (ranged && words.limiter.empty() && !r.engine->traces.limiter.empty()) {
    limit = {Limit::unlimited, 0, 0};
    found = {"all-gather limit", "", fmt::format("no range {}", r.engine->traces.limiter), 0.95};
  } else if (ranged && limit.mode == Limit::fsdp2_event) {
    found = {"all-gather limit", "", "this program has no other", 0.95};
  } else if (!words.limiter.empty() || (event_waits > 0 && limit.mode == Limit::fsdp1_queue)) {
    found = {"all-gather limit", "",
             fmt::format("the host waits for {} events in a step{}", event_waits,
                         words.limiter.empty() ? "" : ", under " + words.limiter),
             0.9};
  } else if (limit.mode == Limit::fsdp1_queue && words.runtime_rows) {
    limit = {Limit::unlimited, 0, 0};
    found = {"all-gather limit", "", "the host waits for no event in a step", 0.8};
  } else {
    const bool waits = !rank.waits.empty();
    found = {"all-gather limit", "",
             waits ? fmt::format("streams wait for each other {} times; taken from the preset", rank.waits.size())
                   : "taken from the preset: the trace has no waits between streams",
             waits ? 0.7 : 0.5};
  }
  found.value = setting_text(r.schedule->config, "fsdp.all_gather_limit");
  r.findings.push_back(found);
}

/// Prefetching, as ranges tell it; nothing where the engine has none, or the trace has not got them.
std::optional<ToldPrefetch> told_prefetch(const RankRows& rank, const HostWords& words,
                                          const std::vector<CollectiveUse>& uses, const dialects::Words* engine) {
  if (engine == nullptr || engine->traces.forward_prefetch.empty()) return std::nullopt;
  const dialects::TraceNames& names = engine->traces;
  // Where a range of the engine is around each gather, one that is not there is none.
  const auto within = [&](const CollectiveUse& use, std::string_view range) {
    const std::int32_t launch = rank.device[use.row].launch;
    return !range.empty() && words.around(launch, range) >= 0;
  };
  const auto of_engine = [&](const CollectiveUse& use) {
    return std::ranges::any_of(names.parts, [&](std::string_view part) { return within(use, part); });
  };
  ToldPrefetch told;
  int backward = 0, pre = 0, post = 0;
  for (const CollectiveUse& use : uses) {
    if (use.purpose != Purpose::parameters) continue;
    if (!of_engine(use)) return std::nullopt;
    told.forward = told.forward || within(use, names.forward_prefetch);
    backward += use.phase == Phase::backward;
    pre += within(use, names.backward_prefetch);
    post += within(use, names.post_backward_prefetch);
  }
  constexpr int kFewest = 2;  // of one gather in backward nothing tells whether it could have been earlier
  told.backward = post > 0              ? ToldPrefetch::Backward::post
                  : pre > 0             ? ToldPrefetch::Backward::pre
                  : backward >= kFewest ? ToldPrefetch::Backward::none
                                        : ToldPrefetch::Backward::unknown;
  return told;
}

/// Backward's gathers on a smaller group than forward's are reshard_after_forward=N. Without sizes of groups nothing
/// tells it from true, where N could be any number that divides the shards.
void find_reshard_group(Recognition& r, Finding& found) {
  const TrainingFacts& facts = r.facts;
  if (!facts.reshards) return;
  if (r.backward_mesh_told) {
    if (facts.backward_shard < facts.shard) {
      found.evidence =
          fmt::format("backward gathers within groups of {}, forward within {}", facts.backward_shard, facts.shard);
    }
    return;
  }
  bool divides = false;
  for (int ranks = 2; ranks < facts.shard; ++ranks) divides = divides || facts.shard % ranks == 0;
  if (!divides) return;
  found.confidence = std::min(found.confidence, 0.6);
  r.unknown.push_back(
      "Whether backward gathers within smaller groups than forward (reshard_after_forward as a number): the sizes of "
      "its groups are not in the trace.");
}

/// Exchanges that are not of experts: around attention, between the products before and after it, they are those of
/// sequences that ranks split (Ulysses).
std::optional<Finding> find_sequence_exchanges(const RankRows& rank, const JobStep& step,
                                               const std::vector<CollectiveUse>& uses) {
  int exchanges = 0, around = 0;
  bool attention = false, product = false;
  auto use = uses.begin();
  for (const std::int32_t index : step.device) {
    const DeviceRow& row = rank.device[index];
    if (use != uses.end() && use->row == index) {
      if (use->kind == Communication::all_to_all && use->purpose == Purpose::activations) {
        around += exchanges > 0 && attention && !product;
        ++exchanges;
        attention = product = false;
      }
      ++use;
    } else if (exchanges > 0 && row.kind == Activity::computation) {
      const KernelKind kind = kernel_kind(row.kind, rank.names[row.name], std::nullopt);
      attention = attention || kind == KernelKind::attention;
      product = product || kind == KernelKind::products;
    }
  }
  if (exchanges == 0) return std::nullopt;
  const bool sequences = around > 0 && around * 8 >= exchanges;
  return Finding{
      "exchanges", sequences ? "sequence parallelism" : "of activations, kind unknown",
      sequences
          ? fmt::format("{} of {} all-to-alls have attention and no product since the one before", around, exchanges)
          : fmt::format("{} all-to-alls of equal counts, without a router or grouped products", exchanges),
      sequences ? 0.9 : 0.6};
}

/// Where computation waits for reductions without need on most ranks, they are in line with it.
void take_serialised(const JobTrace& job, Recognition& r) {
  std::size_t ranks = 0, reductions = 0;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    RecognisedRank& rank = r.ranks[i];
    rank.serialised = find_serialised(job.ranks[i], rank.cut, rank.uses, rank.compute_stream);
    ranks += !rank.serialised.empty();
    reductions += rank.serialised.size();
  }
  if (ranks * 2 <= job.ranks.size()) return;
  if (r.schedule) r.schedule->config.fsdp.reduce_lane = config::ReduceLane::compute;
  const std::string times = fmt::format("{} times on {} of {} ranks", reductions, ranks, job.ranks.size());
  r.findings.push_back({"reductions", "in line with computation",
                        "what was ready and needed nothing of them began when they ended, " + times, 0.95});
}

void find_schedule(const JobTrace& job, const JobWords& words, const HostWords& host_words, Recognition& r) {
  const RankRows& rank = job.ranks.front();
  const RecognisedRank& first = r.ranks.front();
  std::vector<CollectiveUse>& uses = r.ranks.front().uses[r.reference_step];
  const JobStep& step = first.cut.steps[r.reference_step];
  r.facts.presets = likely_presets(r.engine, words, r.facts.expert > 1);
  r.facts.prefetch = told_prefetch(rank, host_words, uses, r.engine);
  r.facts.reentrant =
      r.facts.prefetch && std::ranges::any_of(uses, [&](const CollectiveUse& use) {
        const std::int32_t launch = rank.device[use.row].launch;
        return use.phase == Phase::backward && host_words.around(launch, r.engine->traces.forward_prefetch) >= 0;
      });
  const auto order = launch_order(rank, step, uses, r.table, first.compute_stream, r.table.source != UnitSource::order);
  try {
    r.schedule = match_schedule(r.facts, order);
  } catch (const ConfigError& error) {
    r.unknown.push_back(error.what());
    return;
  }
  const auto in_trace =
      std::ranges::count_if(order, [](const LaunchToken& t) { return t.what != LaunchToken::What::computation; });
  r.findings.push_back({"order", order_line(order, r.facts.units + 1, 12), "launches of the host", 0.99});
  if ((r.kind == JobKind::experts || rank.is_compiled()) && !r.schedule->exact()) {
    // The nearest one is no answer: engines differ in a collective or two of experts, and compilers order as they like.
    r.unknown.push_back(
        rank.is_compiled()
            ? "Which schedule the job follows: XLA's own, of the compiled program."
            : fmt::format("Which schedule the job follows: the nearest, of {}, has {} collectives elsewhere, and the "
                          "job {} ({}).",
                          r.schedule->config.fsdp.preset, r.schedule->collectives_off, in_trace,
                          r.schedule->deviations.empty() ? "in another order" : r.schedule->deviations.front()));
    r.schedule.reset();
    return;
  }
  ScheduleMatch& match = *r.schedule;
  if (r.table.source == UnitSource::order && match.exact()) take_units(job, r);
  const double sure = match.exact()
                          ? (match.distance == 0 ? 0.99 : 0.9)
                          : std::max(0.1, 1.0 - 2.0 * match.collectives_off / static_cast<double>(in_trace + 1));
  const std::string as =
      r.facts.expert > 1 ? fmt::format("the job follows {}'s order: {} of {} collectives in place",
                                       match.config.fsdp.preset, in_trace, in_trace)
      : match.exact()
          ? fmt::format("{} collectives and the computation between them are launched as in its schedule", in_trace)
          : fmt::format("{} of {} collectives are not launched as in its schedule", match.collectives_off, in_trace);
  r.findings.push_back({"schedule", match.config.fsdp.preset, as, sure});
  for (const auto& [what, key] : std::initializer_list<std::pair<const char*, const char*>>{
           {"strategy", "fsdp.strategy"},
           {"layout", "fsdp.layout"},
           {"forward prefetch", "fsdp.forward_prefetch"},
           {"backward prefetch", "fsdp.backward_prefetch"},
           {"reshard after forward", "fsdp.reshard_after_forward"}}) {
    if (rank.is_compiled() && std::string_view(what) == "layout") continue;  // parameter by parameter
    Finding found{what, setting_text(match.config, key), "the schedule's", sure};
    if (std::string_view(what) == "strategy" && r.table.units.size() == 1) {
      // A job with one unit keeps it until backward anyway.
      const bool hybrid = r.facts.replicate > 1;
      found.value = hybrid ? "hybrid_shard or hybrid_shard_grad_op" : "full_shard or shard_grad_op";
      found.evidence += "; with one unit they launch the same order";
    }
    if (std::string_view(what) == "layout") {
      found.evidence = words.layout_copy.empty() ? "no copies between layouts" : "copies: " + words.layout_copy;
      found.confidence = words.layout_copy.empty() ? 0.6 : 0.95;
      if (words.layout_copy.empty() && r.engine != nullptr &&
          std::ranges::find(r.engine->traces.presets, std::string_view(match.config.fsdp.preset)) !=
              r.engine->traces.presets.end()) {
        found.evidence += fmt::format(", and {} has this one", r.name);
        found.confidence = 0.95;
      }
    }
    if (std::string_view(what) == "reshard after forward") find_reshard_group(r, found);
    if (std::string_view(what).ends_with("prefetch")) {
      const bool backward = std::string_view(what).starts_with("backward");
      std::vector<std::string> values;
      for (const config::Value& value : equal_values(r.facts, order, match, key)) values.push_back(value_text(value));
      using Told = ToldPrefetch::Backward;
      // Where a layer's input is also added to its output, the backward of the layer before it begins before its own
      // has ended: then "post" is too late for every gather.
      if (backward && r.facts.prefetch && r.facts.prefetch->backward == Told::none &&
          !r.engine->traces.post_backward_prefetch.empty()) {
        values = {"none", "post"};
      }
      found.value = fmt::format("{}", fmt::join(values, " or "));
      // In the nearest schedule of an order that none has, the prefetching may be another one.
      const bool told = r.facts.prefetch && !(backward && r.facts.prefetch->backward == Told::unknown);
      found.confidence = told ? std::min(sure, 0.95) : match.distance == 0 ? sure : std::min(sure, 0.6);
      if (told) found.evidence = "ranges around what is gathered, and the schedule's depth";
      if (values.size() > 1) found.evidence += "; they launch the same order here";
    }
    r.findings.push_back(found);
  }
  if (!match.same_order.empty()) {
    r.unknown.push_back(
        fmt::format("{} would launch the same order: it does not tell them apart.", fmt::join(match.same_order, ", ")));
  }
  if (!rank.is_compiled()) find_limit(job, words, r);
}

}  // namespace

const Finding* Recognition::find(std::string_view what) const {
  const auto found = std::ranges::find(findings, what, &Finding::what);
  return found == findings.end() ? nullptr : &*found;
}

Recognition recognise(const JobTrace& job) {
  Recognition r;
  if (job.ranks.empty()) throw ConfigError("The trace has no rank.");
  const JobWords words = find_job_words(job);
  std::vector<HostWords> host_words;
  for (const RankRows& rank : job.ranks) {
    host_words.emplace_back(rank);
    RecognisedRank found;
    found.cut = cut_steps(rank);
    found.streams = stream_roles(rank, found.compute_stream);
    for (const JobStep& step : found.cut.steps) found.uses.push_back(find_collectives(rank, step, host_words.back()));
    r.ranks.push_back(std::move(found));
  }
  RecognisedRank& first = r.ranks.front();
  if (first.cut.steps.empty()) {
    r.name = "a trace without work on a device";
    r.unknown.push_back("No row of a device (kernel, copy, collective) is in the trace.");
    return r;
  }
  r.reference_step = usual_step(first);
  assign_units(job.ranks.front(), host_words.front(), first.uses[r.reference_step], r.table);
  for (std::size_t i = 0; i < r.ranks.size(); ++i) {
    for (std::size_t s = 0; s < r.ranks[i].uses.size(); ++s) {
      if (i == 0 && s == r.reference_step) continue;
      if (!r.table.units.empty()) assign_units(job.ranks[i], host_words[i], r.ranks[i].uses[s], r.table);
    }
  }

  const std::vector<CollectiveUse>& uses = first.uses[r.reference_step];
  PurposeCounts counts;
  std::set<std::int64_t> sizes;
  int collectives = 0;
  const int ranks = std::max(job.ranks.front().world_size.value_or(0), static_cast<int>(job.ranks.size()));
  const bool alone = ranks == 1 && job.ranks.front().world_size;
  for (const CollectiveUse& use : uses) {
    if (alone) continue;  // its collectives send nothing
    ++counts.n[{use.purpose, use.phase}];
    if (use.purpose == Purpose::gradients) sizes.insert(use.elements);
    collectives += use.purpose != Purpose::scalars;
  }
  r.kind = kind_of(counts, words, sizes.size() == 1, collectives, ranks > 1);
  r.shards = shards_parameters(counts);
  const bool computes = std::ranges::any_of(job.ranks, [](const RankRows& rank) {
    return std::ranges::find(rank.device, Activity::computation, &DeviceRow::kind) != rank.device.end();
  });
  if (!computes) {
    r.unknown.push_back("What the job computes: the trace has no kernel and no op that computes.");
    // Reductions of one size may be of anything.
    if (r.kind == JobKind::data_parallel && words.engines.empty()) r.kind = JobKind::unknown;
  }
  Program program = program_of(words, r.kind, r.table);
  r.name = std::move(program.name);
  r.engine = program.engine;
  if (r.kind == JobKind::experts && r.shards) {  // experts within what shards the rest
    program = program_of(words, JobKind::sharded, r.table);
    r.engine = program.engine;
    r.name += " within " + program.name;
  }

  std::string named;
  for (const dialects::Words* engine : dialects::words_in_traces()) {
    const auto row = words.engines.find(engine);
    if (!named.empty() || row == words.engines.end() || !engine->traces.of_one_program) continue;
    named = fmt::format(", and a row is called \"{}\"", row->second);
  }
  const bool by_name = program.shards && !named.empty();
  // Which collectives are of forward depends on when they were launched.
  const bool guessed = !first.cut.launches_known && counts.of(Purpose::unknown) + counts.of(Purpose::activations) > 0;
  r.findings.push_back({"job", std::string(to_string(by_name ? JobKind::sharded : r.kind)),
                        (!computes                ? "collectives, and nothing that computes"
                         : alone && !uses.empty() ? "a rank alone gathers and reduces nothing"
                                                  : what_they_do(counts)) +
                            named,
                        guessed                      ? 0.6
                        : by_name                    ? 0.8
                        : r.kind == JobKind::unknown ? 0.3
                        // A name of something that communicates is no evidence for one device alone.
                        : named.empty() || r.kind == JobKind::single ? 0.85
                                                                     : 0.98});
  if (auto found = find_sequence_exchanges(job.ranks.front(), first.cut.steps[r.reference_step], uses)) {
    r.findings.push_back(std::move(*found));
  }
  const std::optional<XlaFacts>& xla = job.ranks.front().xla;
  const std::string_view told_by = xla ? std::string_view(xla->steps_told_by) : "";
  r.findings.push_back({"steps", std::to_string(first.cut.steps.size()),
                        fmt::format("told by {}", told_by.empty() ? to_string(first.cut.source) : told_by),
                        first.cut.sureness()});
  if (!job.ranks.front().device_model.empty()) {
    r.findings.push_back({"device", job.ranks.front().device_model, "deviceProperties", 0.99});
  } else if (!words.amd.empty()) {
    r.findings.push_back({"device", "AMD", fmt::format("\"{}\"", words.amd), 0.95});
  }
  const JobStep& reference = first.cut.steps[r.reference_step];
  const auto find_checkpoints = [&](int passes) {
    auto found = find_checkpointing(job.ranks.front(), host_words.front(), reference, first.compute_stream, passes);
    if (found) r.findings.push_back(std::move(*found));
  };
  const auto find_accumulation = [&](int passes, double sure) {
    if (passes > 1 || !first.cut.launches_known)
      r.findings.push_back({"accumulation", std::to_string(passes), "forward and backward alternate so often", sure});
  };
  if (r.kind == JobKind::data_parallel || r.kind == JobKind::sharded_optimizer || r.kind == JobKind::single) {
    const int micro = 1 + count_passes(job.ranks.front(), reference, host_words.front(), uses);
    find_accumulation(micro, first.cut.launches_known ? 0.9 : 0.5);
    find_checkpoints(2 * micro);
  }
  if (r.kind == JobKind::sharded || r.kind == JobKind::experts) {
    r.syncs = find_syncs(job.ranks.front(), host_words.front(), reference);
  }
  if (r.kind == JobKind::sharded || (r.kind == JobKind::experts && r.shards)) {
    find_training_facts(job, host_words.front(), r);
    const TrainingFacts& facts = r.facts;
    const bool known = find_expert_mesh(job.ranks.front(), uses, r);
    const double by_order = first.cut.launches_known ? 0.8 : 0.5;
    static constexpr EnumNames<UnitSource> kSources{"names that fsdpbench gave them", "annotations of FSDP",
                                                    "order and sizes of collectives"};
    if (!job.ranks.front().is_compiled()) {  // a compiler gathers parameter by parameter
      r.findings.push_back({"units", fmt::format("{}{}", facts.units, facts.root ? " and the root" : ""),
                            std::string(kSources[r.table.source]),
                            r.table.source != UnitSource::order ? 0.99 : by_order});
    }
    r.findings.push_back({"mesh", fmt::format("{} shards x {} replicas", facts.shard, facts.replicate),
                          r.mesh_told ? "sizes of the groups that gather, and that all-reduce what was reduced"
                                      : "ranks of the job: the trace names no groups of collectives",
                          r.mesh_told ? 0.95 : 0.6});
    find_accumulation(facts.accumulate, by_order + 0.1);
    if (facts.expert > 1) {
      const auto one = std::ranges::find_if(r.table.units, [](const FoundUnit& unit) { return unit.experts_of >= 0; });
      r.findings.push_back(
          {"experts", fmt::format("split over {} ranks, {} units", facts.expert, r.table.experts()),
           fmt::format("{} ranks gather them, and {} the rest of their blocks", one->ranks, facts.shard), 0.95});
    }
    if (known) find_schedule(job, words, host_words.front(), r);
    take_serialised(job, r);
    find_checkpoints(facts.units * facts.accumulate);
    if (r.schedule) {
      for (const HostSync& sync : r.syncs) {
        if (r.schedule->deviations.size() >= kMostDeviations) break;
        const HostRow& row = job.ranks.front().host[sync.row];
        r.schedule->deviations.push_back(fmt::format("the host waits for the device ({}, {:.3f} ms) in {}",
                                                     job.ranks.front().names[row.name],
                                                     static_cast<double>(row.end_ns - row.begin_ns) / 1e6, sync.where));
      }
    }
    if (r.table.source == UnitSource::order) {
      r.unknown.push_back("Nothing names the units: collectives were assigned to units by order and size.");
    }
  }
  if (std::ranges::any_of(uses, [](const CollectiveUse& use) { return use.elements < 0; }))
    r.unknown.push_back(fmt::format("Sizes of collectives are not in the trace: {} has them.",
                                    xla ? "the module in an xplane.pb" : "record_param_comms"));
  if (job.ranks.size() == 1 && collectives > 0) {
    r.unknown.push_back("One rank's file only: whether a collective waited for another rank cannot be told.");
  }
  return r;
}

}  // namespace fsdpbench::foreign
