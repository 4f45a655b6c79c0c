#include "app/explain_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "config/words/words.h"
#include "config/write.h"
#include "plan/alike_units.h"
#include "plan/communication.h"
#include "record/json_fields.h"
#include "record/table.h"
#include "runs/result_fields.h"
#include "runs/run_table.h"
#include "schedule/prefetcher.h"
#include "schedule/print_schedule.h"
#include "schedule/wasted_gathers.h"

namespace fsdpbench::app {
namespace {

/// The headline of a run, and on the next line what of it is emulated.
std::string explained_headline(const engine::Setup& p) {
  std::string text = run_headline(p);
  const std::size_t end = text.find("; ");
  return end == std::string::npos ? text + "\n" : text.replace(end, 2, "\n") + "\n";
}

std::int64_t replicated_parameters(const plan::ShardLayout& layout) {
  std::int64_t numel = 0;
  for (const plan::ParameterPlacement& p : layout.replicated) numel += p.numel;
  return numel;
}

std::string units_table(const plan::Plan& plan) {
  const std::int64_t state = size_of(plan.state_dtype);
  Table table;
  table.title = "Units: gathered, freed and reduced together; sizes of one";
  table.header = {"unit", "modules", "parameters", "shard", "padding", "gathered", "replicated"};
  for (const plan::AlikeUnits& units : plan::alike_units(plan)) {
    const plan::ShardLayout& l = plan.units[units.first].layout;
    const bool sharded = !l.sharded.empty();
    table.rows.push_back({plan::unit_names(plan, units), plan::module_names(plan, units),
                          format_count(l.parameter_numel() + replicated_parameters(l)),
                          sharded ? format_bytes(l.shard_numel * state) : "-",
                          sharded ? format_bytes(l.padding_numel() * state) : "-",
                          sharded ? format_bytes(l.gathered_numel() * size_of(plan.param_dtype)) : "-",
                          l.replicated.empty() ? "-" : format_bytes(l.replicated_numel * state)});
  }
  return format_table(table) + fmt::format("shard and replicated in {} (masters), gathered in {}\n",
                                           plan.state_dtype == DType::f32 ? "fp32" : to_string(plan.state_dtype),
                                           to_string(plan.param_dtype));
}

/// Decimal units, as papers use them; format_bytes() is for what was counted.
std::string decimal_bytes(double bytes) { return shown(bytes / 1e3, "KB"); }

std::string memory_table(const engine::Setup& p) {
  const PoolStatistics& exact = p.memory;
  Table walk;
  walk.title = "Peak of the pool, exact: this schedule's allocations, activations included";
  const auto counted = [&](std::string_view name, std::int64_t bytes) {
    walk.rows.push_back({std::string(name), format_bytes(bytes), fmt::format("{}", bytes)});
  };
  counted("total", exact.peak_occupied_total);
  for (MemoryCategory c : kMemoryCategories) counted(to_string(c), exact.peak_occupied[index_of(c)]);
  counted("reserved", exact.reserved);
  if (p.host_memory.peak_occupied_total > 0) counted("pinned host memory", p.host_memory.peak_occupied_total);
  return format_table(walk) +
         "each category's own peak; they come at different times, so their sum may exceed the total\n";
}

plan::CommunicationVolume volume(const engine::Setup& p) {
  return schedule::communication_volume(p.schedules.steady(), p.plan.groups);
}

std::string communication_table(const engine::Setup& p) {
  const plan::CommunicationVolume v = volume(p);
  const double parallel = plan::data_parallel_volume(p.plan, p.config);
  Table table;
  table.title = "Communication a rank and step (ring algorithms, bytes sent)";
  const auto row = [&](const char* name, double bytes) { table.rows.push_back({name, decimal_bytes(bytes)}); };
  row("all-gather", v.all_gather);
  row("reduce-scatter", v.reduce_scatter);
  row("all-reduce", v.all_reduce);
  row("all-to-all", v.all_to_all);
  row("sum", v.total());
  row("data parallel", parallel);
  std::string text = format_table(table);
  if (parallel > 0) {
    text += fmt::format(
        "{:.3f} times the bytes of data parallel. At one dtype, full_shard moves 1.5 times (not 2),\n"
        "shard_grad_op 1.0 times; bytes are not time: what counts is how much hides behind computation.\n",
        v.total() / parallel);
  }
  return text;
}

/// Who communicates with whom along each axis of the mesh.
std::string groups_table(const plan::Plan& plan) {
  Table table;
  table.title = "Groups: ranks that communicate";
  table.header = {"axis", "groups", "ranks each", "the first group"};
  for (std::size_t g = 0; g < plan::kGroupCount; ++g) {
    const auto group = static_cast<plan::Group>(g);
    if (!plan.groups.exists(group)) continue;
    const plan::Members first = plan.groups.members(group, 0);
    const std::string others = first.stride == 1 ? "" : fmt::format(" by {}", first.stride);
    table.rows.push_back({std::string(to_string(group)), std::to_string(plan.groups.count(group)),
                          std::to_string(first.count),
                          fmt::format("{} to {}{}", first[0], first[first.count - 1], others)});
  }
  return format_table(table);
}

/// Both ends of each phase, where it is long.
std::string short_order(const std::string& order) {
  constexpr std::size_t kEnds = 4;
  std::vector<std::vector<std::string>> phases(1);
  std::istringstream words(order);
  for (std::string word; words >> word;) {
    if (word.front() == '|') phases.emplace_back();
    phases.back().push_back(word);
  }
  std::string text;
  for (const std::vector<std::string>& phase : phases) {
    for (std::size_t i = 0; i < phase.size(); ++i) {
      const bool middle = phase.size() > 2 * kEnds + 2 && i > kEnds && i + kEnds < phase.size();
      if (middle && i > kEnds + 1) continue;
      text += (text.empty() ? "" : " ") + (middle ? "…" : phase[i]);
    }
  }
  return text;
}

/// All-gathers that are wasted in the same way, and what would spare them.
struct WastedAlike {
  std::string what;    ///< "gathered, never used"
  std::string why;     ///< which rule it is
  std::string remedy;  ///< the keys here, and the words of PyTorch
  std::vector<int> units;
  int gathers = 0;         ///< a step
  std::int64_t bytes = 0;  ///< a rank sends for them in a step

  bool is_like(const WastedAlike& other) const { return what == other.what && why == other.why; }
};

/// A remedy in this program's keys, and in the words of the preset's system where it has some.
std::string remedy(const engine::Setup& p, std::string dialects::Remedies::*what) {
  const dialects::Words* const system = dialects::words_of_preset(p.config.fsdp.preset);
  const std::string theirs = system != nullptr && system->remedies ? (*system->remedies).*what : "";
  return (*dialects::words_of("fsdpbench").remedies).*what + (theirs.empty() ? "" : fmt::format("; there {}", theirs));
}

WastedAlike wasted_words(const engine::Setup& p, const schedule::WastedGather& wasted) {
  using R = dialects::Remedies;
  const config::Fsdp& fsdp = p.config.fsdp;
  const schedule::Op& op = p.schedules.steady().ops[wasted.op];
  const plan::Unit& unit = p.plan.units[wasted.unit];
  const std::vector<int>& modules = unit.members.modules;
  const bool backward = op.phase == schedule::Phase::backward, early = wasted.waste == schedule::Waste::freed_early;
  const auto said = [&](std::string_view why, std::string remedy) {
    return WastedAlike{std::string(schedule::words_of(wasted.waste)),
                       std::string(why),
                       std::move(remedy),
                       {wasted.unit},
                       1,
                       wasted.bytes};
  };
  if (unit.is_experts() && fsdp.recompute_frees && backward) {
    return said(early ? "a recomputation frees the experts, although their backward follows"
                      : "a recomputation counts as a use, so that the block before prefetches experts whose backward "
                        "is over",
                "fsdp.recompute_frees=false, as in a PyTorch with pytorch#164009");
  }
  if (early && !backward) {
    return said(schedule::why_wasted::kFreedBetweenMicrobatches, remedy(p, &R::keep_after_backward));
  }
  if (early) {
    const bool automatic = fsdp.reshard_after_forward.mode == config::ReshardAfterForward::Mode::automatic;
    return said(schedule::why_wasted::kFreedAfterForward,
                automatic ? "fsdp.strategy=shard_grad_op" : remedy(p, &R::keep_after_forward));
  }
  if (!modules.empty() && modules.back() < p.plan.shapes.first_trained() && backward) {
    return said(
        "backward prefetch goes by the order of forward and gathers units below the first one that trains",
        "fsdp.backward_prefetch=none, which gathers the others late, too; PyTorch: on the first module that trains, "
        "set_modules_to_backward_prefetch with a list of that module alone");
  }
  if (fsdp.checkpoint_reentrant && backward) return said(schedule::why_wasted::kReentrant, remedy(p, &R::no_reentrant));
  return said("a prefetch brings it before its turn, and it is dropped unused", remedy(p, &R::prefetch_less));
}

std::vector<WastedAlike> wasted_alike(const engine::Setup& p) {
  std::vector<WastedAlike> all;
  for (const schedule::WastedGather& wasted : schedule::wasted_gathers(p.plan, p.schedules.steady())) {
    WastedAlike words = wasted_words(p, wasted);
    const auto same = std::ranges::find_if(all, [&](const WastedAlike& other) { return other.is_like(words); });
    if (same == all.end()) {
      all.push_back(std::move(words));
      continue;
    }
    if (std::ranges::find(same->units, wasted.unit) == same->units.end()) same->units.push_back(wasted.unit);
    same->gathers += 1;
    same->bytes += wasted.bytes;
  }
  for (WastedAlike& words : all) std::ranges::sort(words.units);
  return all;
}

/// A line for each rule that wastes all-gathers; empty if none does.
std::string wasted_lines(const engine::Setup& p) {
  std::string text;
  for (const WastedAlike& wasted : wasted_alike(p)) {
    std::string names;
    for (std::size_t first = 0; first < wasted.units.size();) {
      std::size_t last = first;
      while (last + 1 < wasted.units.size() && wasted.units[last + 1] == wasted.units[last] + 1) ++last;
      const auto label = [&](std::size_t i) { return p.plan.units[wasted.units[i]].label(); };
      names += (names.empty() ? "" : ", ") + label(first) + (last > first ? "-" + label(last) : "");
      first = last + 1;
    }
    text += fmt::format("{} {}: {}; {} all-gather{}, {} a rank and step. Remedy: {}.\n",
                        wasted.units.size() == 1 ? "unit " + names + " is" : "units " + names + " are", wasted.what,
                        wasted.why, wasted.gathers, wasted.gathers == 1 ? "" : "s", format_bytes(wasted.bytes),
                        wasted.remedy);
  }
  return text;
}

/// Data of --format json.
struct Explained {
  const engine::Setup* setup;
  std::vector<schedule::WastedGather> wasted;
};

// Parts of a plan know the whole by which they are named.
using PlannedUnit = std::pair<const plan::Plan*, const plan::Unit*>;
using PlannedParameter = std::pair<const plan::ParameterShape*, bool>;  // whether it is replicated
using ExplainedWaste = std::pair<const engine::Setup*, const schedule::WastedGather*>;

std::vector<PlannedParameter> parameters_of(const PlannedUnit& u) {
  std::vector<PlannedParameter> all;
  for (const bool replicated : {false, true}) {
    for (const plan::ParameterPlacement& q : replicated ? u.second->layout.replicated : u.second->layout.sharded) {
      all.emplace_back(&u.first->shapes.parameters[q.parameter], replicated);
    }
  }
  return all;
}
std::string label_of(const engine::Setup& p, int unit) { return unit < 0 ? "" : p.plan.units[unit].label(); }
auto words(std::string WastedAlike::*what) {
  return [what](const ExplainedWaste& w) { return wasted_words(*w.first, *w.second).*what; };
}

/// Note on products whose rows do not begin at 16 bytes; empty: none do. An H100 has a fifth of the rate for them.
std::string vocabulary_line(const config::RunConfig& config) {
  constexpr std::int64_t kAligned = 8, kPadded = 64;  // numbers of two bytes
  const std::int64_t vocab = config.model.vocab;
  if (config.model.kind == config::ModelKind::mlp || config.fsdp.param_dtype != DType::bf16 || vocab % kAligned == 0) {
    return "";
  }
  return fmt::format(
      "Pad the vocabulary to {}: rows of {} logits are no multiple of 16 bytes, which makes the head slow.\n",
      (vocab + kPadded - 1) / kPadded * kPadded, vocab);
}

}  // namespace

// clang-format off
template <>
Fields<PlannedParameter> declared() {
  using P = PlannedParameter;
  return {"PlannedParameter", "A parameter of a unit.", "plan/model_shapes.h", {
    {"name", via(&P::first, &plan::ParameterShape::name), "", "its name"},
    {"shape", via(&P::first, &plan::ParameterShape::shape), "", "its dimensions"},
    {"replicated", &P::second, "", "whether all ranks have all of it"},
  }};
}

template <>
Fields<PlannedUnit> declared() {
  using L = plan::ShardLayout;
  const auto layout = [](const PlannedUnit& u) -> const L& { return u.second->layout; };
  return {"PlannedUnit", "A unit: gathered, freed and reduced together.", "plan/shard_layout.h", {
    {"label", via(&PlannedUnit::second, &plan::Unit::label), "", "its label"},
    {"parameters", parameters_of, "", "its parameters"},
    {"parameter_numel", via(layout, &L::parameter_numel), "", "elements of the sharded parameters"},
    {"shard_numel", via(layout, &L::shard_numel), "", "elements per rank, padding included"},
    {"padding_numel", via(layout, &L::padding_numel), "", "elements of padding"},
    {"gathered_numel", via(layout, &L::gathered_numel), "", "elements as gathered"},
    {"replicated_numel", via(layout, &L::replicated_numel), "", "elements that all ranks have"},
  }};
}

template <>
Fields<ExplainedWaste> declared() {
  using W = schedule::WastedGather;
  return {"WastedGather", "An all-gather that nobody uses, or that brings what was there.", "schedule/wasted_gathers.h", {
    {"waste", via(&ExplainedWaste::second, &W::waste), "", "`never_used`, `used_once` or `freed_early`"},
    {"unit", [](const ExplainedWaste& w) { return label_of(*w.first, w.second->unit); }, "", "label of its unit"},
    {"op", via(&ExplainedWaste::second, &W::op), "", "its place in `--schedule`"},
    {"other_op", via(&ExplainedWaste::second, &W::other), "", "place of the other gather of the same", if_known},
    {"bytes", via(&ExplainedWaste::second, &W::bytes), "B", "that a rank sends for it"},
    {"why", words(&WastedAlike::why), "", "the rule that wastes it"},
    {"remedy", words(&WastedAlike::remedy), "", "what spares it"},
  }};
}

template <>
Fields<Explained> declared() {
  using E = Explained;
  using S = engine::Setup;
  using P = plan::Plan;
  using V = plan::CommunicationVolume;
  const auto host_peak = via(&E::setup, &S::host_memory, &PoolStatistics::peak_occupied_total);
  const auto sent = via(&E::setup, volume);
  return {"Explanation", "Output of `explain --format json` ([explain.md](explain.md)).", "plan/plan.h", {
    {"schema_version", [](const E&) { return kExplainSchemaVersion; }, "", "version of this format"},
    {"config", [](const E& e) { return config::to_json(e.setup->config); }, "", "every key with its resolved value"},
    {"plan", {"Plan", "Ownership of all bytes.", "plan/plan.h", {
      {"ranks", via(&E::setup, &S::plan, &P::mesh, &plan::Mesh::ranks), "", "number of ranks"},
      {"shard", via(&E::setup, &S::plan, &P::mesh, &plan::Mesh::shard), "", "ranks that split a unit"},
      {"replicate", via(&E::setup, &S::plan, &P::mesh, &plan::Mesh::replicate), "", "groups that hold equal shards"},
      {"tensor", via(&E::setup, &S::plan, &P::mesh, &plan::Mesh::tensor), "", "ranks that split layers"},
      {"parameters", via(&E::setup, &S::plan, &P::shapes, &plan::ModelShapes::parameter_count), "", "number of parameters of the model"},
      {"units", [](const E& e) { return each_of(e.setup->plan, e.setup->plan.units); }, "", "units in the order of forward, the root first"},
    }}},
    {"memory", {"PlannedMemory", "Memory of a device.", "plan/communication.h", {
      {"peak_bytes", {"PlannedPeak", "Peak of the pool, exact, activations included.", "schedule/memory_walk.h", {
        spread(via(&E::setup, &S::memory)),
        {"reserved", via(&E::setup, &S::memory, &PoolStatistics::reserved), "B", "memory that the pool reserves"},
      }}},
      {"host_peak_bytes", host_peak, "B", "peak of pinned host memory", if_any},
    }}},
    {"communication", {"PlannedCommunication", "Bytes that a rank sends in a step.", "plan/communication.h", {
      {"all_gather", via(sent, &V::all_gather), "B", "by all-gathers"},
      {"reduce_scatter", via(sent, &V::reduce_scatter), "B", "by reduce-scatters"},
      {"all_reduce", via(sent, &V::all_reduce), "B", "by all-reduces"},
      {"all_to_all", via(sent, &V::all_to_all), "B", "by exchanges"},
      {"total", via(sent, &V::total), "B", "all of it"},
      {"data_parallel", [](const E& e) { return plan::data_parallel_volume(e.setup->plan, e.setup->config); }, "B", "what data parallelism would send"},
    }}},
    {"wasted_gathers", [](const E& e) { return each_of(*e.setup, e.wasted); }, "", "all-gathers that are wasted"},
    {"schedule", {"Schedule", "The steady step.", "schedule/build_schedules.h", {
      {"collectives", [](const E& e) { return schedule::collective_order(e.setup->plan, e.setup->schedules.steady()); }, "", "order of collectives"},
      {"issue", [](const E& e) { return schedule::issue_order(e.setup->plan, e.setup->schedules.steady()); }, "", "order of issue"},
    }}},
  }};
}
// clang-format on

std::string explain_text(const engine::Setup& p) {
  std::string text = explained_headline(p) + "\n";
  text += units_table(p.plan) + "\n";
  text += memory_table(p) + "\n";
  text += communication_table(p) + "\n";
  if (p.plan.mesh.tensor > 1) text += groups_table(p.plan) + "\n";
  text += "Collectives, steady state (* prefetched in backward, | between forward and backward)\n  " +
          short_order(schedule::collective_order(p.plan, p.schedules.steady())) + "\n\n";
  if (p.plan.mesh.tensor > 1) {
    text += fmt::format("Beside these {} exchanges among ranks that split layers (--schedule shows where)\n\n",
                        std::ranges::count_if(p.schedules.steady().ops, &schedule::Op::exchanges_parts));
  }
  text += wasted_lines(p) + vocabulary_line(p.config);
  return text + "More: --schedule, --format json\n";
}

std::string schedule_text(const engine::Setup& p) {
  return explained_headline(p) +
         "\nSchedule of one step, steady state: what the host issues, in order (+ allocates, - frees)\n" +
         schedule::op_list(p.plan, p.schedules.steady());
}

nlohmann::json explain_json(const engine::Setup& p) {
  return fields<Explained>().write({&p, schedule::wasted_gathers(p.plan, p.schedules.steady())});
}

const ObjectFacts& explain_file_facts() { return fields<Explained>().facts(); }

}  // namespace fsdpbench::app
