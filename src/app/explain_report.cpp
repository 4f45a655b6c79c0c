#include "app/explain_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "account/step_bound.h"
#include "base/bytes.h"
#include "base/error.h"
#include "config/fields.h"
#include "config/nearest.h"
#include "config/write.h"
#include "plan/alike_units.h"
#include "plan/communication.h"
#include "record/json_fields.h"
#include "record/table.h"
#include "runs/cell.h"
#include "runs/measure.h"
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

double states(const plan::MemoryEstimate& e) { return e.parameters + e.optimizer + e.gradients; }

std::string memory_table(const engine::Setup& p) {
  const plan::MemoryEstimate with = plan::memory_with_fsdp(p.plan, p.config);
  const plan::MemoryEstimate without = plan::memory_without_fsdp(p.plan, p.config);
  Table table;
  table.title = "Memory a device, closed form (1 GB = 1e9 bytes): states, one unit in flight, no activations";
  table.header = {"", "with FSDP", "without"};
  const auto row = [&](const std::string& name, double a, double b) {
    table.rows.push_back({name, decimal_bytes(a), decimal_bytes(b)});
  };
  const std::string in = fmt::format("({})", to_string(p.plan.state_dtype));
  row("parameters " + in, with.parameters, without.parameters);
  row("optimizer", with.optimizer, without.optimizer);
  row("gradients " + in, with.gradients, without.gradients);
  row("  states together", states(with), states(without));
  row("gathered parameters", with.gathered_units, without.gathered_units);
  row("unsharded gradients", with.gradient_units, without.gradient_units);
  row("sum", with.total(), without.total());
  std::string text = format_table(table);

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
  return text + "\n" + format_table(walk) +
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

WastedAlike wasted_words(const engine::Setup& p, const schedule::WastedGather& wasted) {
  const schedule::Op& op = p.schedules.steady().ops[wasted.op];
  const plan::Unit& unit = p.plan.units[wasted.unit];
  WastedAlike words;
  words.units = {wasted.unit};
  words.gathers = 1;
  words.bytes = wasted.bytes;
  const bool after_recomputation =
      unit.is_experts() && p.config.fsdp.recompute_frees && op.phase == schedule::Phase::backward;
  const char* const kNewerPyTorch =
      "fsdp.recompute_frees = false; PyTorch: a version that has pytorch#164009, whose hook after forward does nothing "
      "in a backward";
  words.what = schedule::words_of(wasted.waste);
  if (wasted.waste == schedule::Waste::freed_early) {
    if (after_recomputation) {
      words.why = "a recomputation frees the experts, although their backward follows";
      words.remedy = kNewerPyTorch;
      return words;
    }
    const bool next_micro = op.phase == schedule::Phase::forward;
    const bool automatic = p.config.fsdp.reshard_after_forward.mode == config::ReshardAfterForward::Mode::automatic;
    words.why = next_micro ? schedule::why_wasted::kFreedBetweenMicrobatches : schedule::why_wasted::kFreedAfterForward;
    const bool fsdp1 = p.config.fsdp.gradients_after_views;
    if (next_micro) {
      words.remedy = "fsdp.reshard_after_backward = false keeps every unit between microbatches";
      if (!fsdp1) {
        words.remedy +=
            "; PyTorch: set_reshard_after_backward(False, recurse=False) on this module until the last microbatch";
      }
    } else {
      words.remedy = automatic ? "fsdp.strategy = \"shard_grad_op\" keeps every unit"
                               : "fsdp.reshard_after_forward = \"auto\" keeps the root";
      if (!fsdp1) words.remedy += "; PyTorch: reshard_after_forward=False for this module alone";
    }
    return words;
  }
  const std::vector<int>& modules = unit.members.modules;
  const bool no_backward = !modules.empty() && modules.back() < p.plan.shapes.first_trained();
  if (after_recomputation) {
    words.why = "a recomputation counts as a use, so that the block before prefetches experts whose backward is over";
    words.remedy = kNewerPyTorch;
  } else if (no_backward && op.phase == schedule::Phase::backward) {
    words.why = "backward prefetch goes by the order of forward and gathers units below the first one that trains";
    words.remedy =
        "fsdp.backward_prefetch = \"none\", which gathers the others late, too; PyTorch: on the first module that "
        "trains, set_modules_to_backward_prefetch with a list of that module alone";
  } else if (p.config.fsdp.checkpoint_reentrant && op.phase == schedule::Phase::backward) {
    words.why = schedule::why_wasted::kReentrant;
    words.remedy =
        "fsdp.checkpoint_reentrant = false (PyTorch: use_reentrant=False), or fsdp.forward_prefetch = \"implicit\" "
        "(no set_modules_to_forward_prefetch)";
  } else {
    words.why = "a prefetch brings it before its turn, and it is dropped unused";
    words.remedy = "prefetch fewer units ahead (fsdp.forward_prefetch, fsdp.backward_prefetch)";
  }
  return words;
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

/// Choice of ops: those of a unit by its label, or of a module and the unit that holds it.
class OpChoice {
 public:
  OpChoice(const plan::Plan& plan, const std::string& name) {
    const auto named = [](const std::string& wanted, const auto& all, const auto& name_of) {
      const auto found = std::ranges::find(all, wanted, name_of);
      return found == all.end() ? -1 : static_cast<int>(found - all.begin());
    };
    if (name == kWholeSchedule) return;
    unit_ = named(name, plan.units, &plan::Unit::label);
    module_ = named(name, plan.shapes.modules, &plan::ModuleShape::name);
    if (module_ >= 0) unit_ = plan.unit_of_module[module_];
    if (unit_ >= 0) return;
    std::vector<std::string> names;
    for (const plan::ModuleShape& module : plan.shapes.modules) names.push_back(module.name);
    const std::string near = config::nearest(name, names);
    throw ConfigError(fmt::format("--schedule={}: there is no such unit or layer; units are R and 0 to {}{}", name,
                                  plan.units.size() - 2,
                                  near.empty() ? fmt::format(", layers {}", fmt::join(names, ", "))
                                               : fmt::format(", the layer with the nearest name is {}", near)));
  }
  bool holds(const schedule::Op& op) const {
    if (unit_ < 0) return true;
    return module_ >= 0 && op.module >= 0 ? op.module == module_ : op.unit == unit_;
  }

 private:
  int unit_ = -1;
  int module_ = -1;
};

/// Data of --format json.
struct Explained {
  const engine::Setup* setup;
  const Prediction* prediction;
  std::vector<schedule::WastedGather> wasted;
};

// Parts of a plan know the whole by which they are named.
using PlannedUnit = std::pair<const plan::Plan*, const plan::Unit*>;
using PlannedParameter = std::pair<const plan::ParameterShape*, bool>;  // whether it is replicated
using ScheduledOp = std::pair<const engine::Setup*, const schedule::Op*>;
using ScheduledBuffer = std::pair<const engine::Setup*, schedule::BufferId>;
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
auto buffers(std::vector<schedule::BufferId> schedule::Op::*list) {
  return [list](const ScheduledOp& op) {
    std::vector<ScheduledBuffer> all;
    for (const schedule::BufferId id : op.second->*list) all.emplace_back(op.first, id);
    return all;
  };
}
const schedule::Buffer& buffer_of(const ScheduledBuffer& b) { return b.first->schedules.steady().buffers[b.second]; }
std::vector<int> waits_of(const schedule::Op& op) {
  std::vector<int> events;
  for (const schedule::Wait& wait : op.waits) events.push_back(wait.event);
  return events;
}
std::string label_of(const engine::Setup& p, int unit) { return unit < 0 ? "" : p.plan.units[unit].label(); }
auto words(std::string WastedAlike::*what) {
  return [what](const ExplainedWaste& w) { return wasted_words(*w.first, *w.second).*what; };
}

}  // namespace

Prediction predict(const engine::Setup& p, const GivenRates& given) {
  config::RunConfig config = p.config;
  if (config.device.backend == config::BackendKind::virtual_ && !config.simulate.cluster.empty()) {
    if (given.tflops || given.link_gb_per_s || given.link_latency_us) {
      throw ConfigError(fmt::format(
          "--tflops and --link-… do not go with a cluster, whose file has them; leave them out, or --cluster {}.",
          config.simulate.cluster));
    }
    try {
      const Trial trial = measure(open_cell(config), {}, nullptr, {}, {});
      return {.step = answer_of(*trial.metrics, 0), .cluster = config.simulate.cluster, .rates = {}, .why_none = {}};
    } catch (const ConfigError& error) {
      return {.step = {}, .cluster = {}, .rates = {}, .why_none = error.what()};
    }
  }
  const auto give = [&](const char* option, const char* key, const std::optional<double>& value) {
    const config::Field& field = *config::find_field(key);
    if (!value || field.read(config, *value)) return;
    throw ConfigError(fmt::format("{} {} is not valid; expected {}.", option, *value, field.valid));
  };
  give("--tflops", "emulate.compute_tflops", given.tflops);
  give("--link-gb-per-s", "emulate.link_gb_per_s", given.link_gb_per_s);
  give("--link-latency-us", "emulate.link_latency_us", given.link_latency_us);
  const config::Emulate& at = config.emulate;
  const bool offloads = p.host_memory.reserved > 0;
  Prediction prediction;
  if (!at.compute_tflops) {
    prediction.why_none = "no rate of computation is known; --tflops (or emulate.compute_tflops) says one";
  } else if (!at.link_gb_per_s && p.plan.mesh.ranks() > 1) {
    prediction.why_none = "no bandwidth of a link is known; --link-gb-per-s (or emulate.link_gb_per_s) says one";
  } else if (offloads && !at.pcie_gb_per_s) {
    prediction.why_none = "no bandwidth of PCIe is known (fsdp.cpu_offload); emulate.pcie_gb_per_s says one";
  }
  if (!prediction.why_none.empty()) return prediction;
  prediction.rates = {*at.compute_tflops * 1e12, {at.link_gb_per_s.value_or(0) * 1e9, at.link_latency_us * 1e-6}};
  if (offloads) prediction.rates.pcie = *at.pcie();
  clock::OpTimes times = clock::emulated_times(p, prediction.rates);
  if (clock::too_long(times)) {
    prediction.why_none = "at these rates its ops would take over 104 days";
    return prediction;
  }
  const account::StepPrediction step = account::predict_step(p, std::move(times));
  const auto ms = [](std::int64_t ns) { return Estimate{static_cast<double>(ns) / 1e6, {}}; };
  StepAnswer& answer = prediction.step.emplace();
  answer.step_ms = ms(step.step);
  answer.compute_ms = ms(step.computation);
  answer.comm_ms = ms(step.communication);
  answer.exposed_comm_ms = ms(step.exposed_communication());
  return prediction;
}

std::string prediction_text(const Prediction& prediction) {
  if (!prediction.step) return fmt::format("Predicted step: none, because {}\n", prediction.why_none);
  const clock::Rates& r = prediction.rates;
  Table table = answer_table({.title = "Predicted step", .columns = {{"", *prediction.step}}});
  table.header.clear();  // of one column
  if (!prediction.cluster.empty()) {
    return format_table(table) + fmt::format("by the measured rates of {}\n", prediction.cluster);
  }
  std::string text = format_table(table) +
                     fmt::format("modelled op times: matrix products at {:.4g} TFLOP/s", r.flops_per_second / 1e12);
  if (prediction.step->comm_ms->value > 0) {
    text += fmt::format(
        ", a collective of\nn ranks n-1 times ({:.4g} us + a rank's part at {:.4g} GB/s), a ring: not log2(n) times",
        r.link.latency_seconds * 1e6, r.link.bytes_per_second / 1e9);
  }
  if (r.pcie.bytes_per_second > 0) {
    text += fmt::format(
        ";\nexposed with copies over PCIe at {:.4g} us + {:.4g} GB/s each direction, the host's update in no time",
        r.pcie.latency_seconds * 1e6, r.pcie.bytes_per_second / 1e9);
  }
  return text + "\n";
}

template <>
Fields<Prediction> declared<Prediction>() {
  using P = Prediction;
  // clang-format off
  const auto rates = when([](const P& p) { return p.step && p.cluster.empty(); });
  const auto links = when([](const P& p) { return p.step && p.cluster.empty() && p.step->comm_ms->value > 0; });
  const auto copies = when([](const P& p) { return p.rates.pcie.bytes_per_second > 0 && p.step; });
  return {"StepPrediction", "The step of a configuration that nobody has run.", "app/explain_report.h", {
      {"reason", &P::why_none, "", "why there is none", if_any},
      spread(&P::step),
      {"cluster", &P::cluster, "", "whose measured rates the ops have", if_any},
      {"tflops", [](const P& p) { return p.rates.flops_per_second / 1e12; }, "TFLOP/s", "of a rank", rates},
      {"link_gb_per_s", [](const P& p) { return p.rates.link.bytes_per_second / 1e9; }, "GB/s", "of a rank's link", links},
      {"link_latency_us", [](const P& p) { return p.rates.link.latency_seconds * 1e6; }, "us", "of a hop", links},
      {"pcie_gb_per_s", [](const P& p) { return p.rates.pcie.bytes_per_second / 1e9; }, "GB/s", "each direction", copies},
      {"pcie_latency_us", [](const P& p) { return p.rates.pcie.latency_seconds * 1e6; }, "us", "of a copy", copies}}};
  // clang-format on
}

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
Fields<plan::MemoryEstimate> declared() {
  using E = plan::MemoryEstimate;
  return {"MemoryEstimate", "Memory of a device in closed form, without activations.", "plan/communication.h", {
    {"parameters", &E::parameters, "B", "masters, in fsdp.state_dtype"},
    {"optimizer", &E::optimizer, "B", "moments"},
    {"gradients", &E::gradients, "B", "gradients of what the device owns, in fsdp.state_dtype"},
    {"gathered_units", &E::gathered_units, "B", "unsharded parameters in flight"},
    {"gradient_units", &E::gradient_units, "B", "unsharded gradients in flight"},
    {"total", &E::total, "B", "all of it"},
  }};
}

template <>
Fields<ScheduledBuffer> declared() {
  using B = schedule::Buffer;
  return {"ScheduledBuffer", "A buffer that an op allocates or frees.", "schedule/buffer.h", {
    {"buffer", &ScheduledBuffer::second, "", "its number"},
    {"role", via(buffer_of, &B::role), "", "what it holds"},
    {"bytes", via(buffer_of, &B::bytes), "B", "its size"},
    {"category", via(buffer_of, &B::category), "", "category that it is counted in"},
  }};
}

template <>
Fields<ScheduledOp> declared() {
  using S = ScheduledOp;
  using O = schedule::Op;
  const auto sends = via(&S::second, &O::is_collective);
  return {"ScheduledOp", "An op of the steady step.", "schedule/op.h", {
    {"kind", via(&S::second, &O::kind), "", "what it does"},
    {"phase", via(&S::second, &O::phase), "", "phase of the step"},
    {"micro", via(&S::second, &O::micro), "", "microbatch"},
    {"name", [](const S& s) { return schedule::op_name(s.first->plan, *s.second); }, "", "as traces name it"},
    {"waits", via(&S::second, waits_of), "", "events that it waits for"},
    {"lane", [](const S& s) { return s.second->is_host() ? "host" : std::string(to_string(s.second->lane)); }, "", "where it runs"},
    {"unit", [](const S& s) { return label_of(*s.first, s.second->unit); }, "", "label of its unit", if_any},
    {"records", via(&S::second, &O::record), "", "event that it records", if_known},
    {"prefetch", via(&S::second, &O::prefetch), "", "part of a gather that is issued before it is needed", if_any},
    {"group", via(&S::second, &O::group), "", "group that communicates", when(sends)},
    {"count", via(&S::second, &O::collective, &schedule::Collective::count), "", "elements of a collective", when(sends)},
    {"dtype", via(&S::second, &O::collective, &schedule::Collective::dtype), "", "type of an element", when(sends)},
    {"allocates", buffers(&O::allocates), "", "buffers that it allocates", if_any},
    {"frees", buffers(&O::frees), "", "buffers that it frees", if_any},
  }};
}

template <>
Fields<ExplainedWaste> declared() {
  using W = schedule::WastedGather;
  return {"WastedGather", "An all-gather that nobody uses, or that brings what was there.", "schedule/wasted_gathers.h", {
    {"waste", via(&ExplainedWaste::second, &W::waste), "", "`never_used`, `used_once` or `freed_early`"},
    {"unit", [](const ExplainedWaste& w) { return label_of(*w.first, w.second->unit); }, "", "label of its unit"},
    {"op", via(&ExplainedWaste::second, &W::op), "", "its place among the ops"},
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
      {"with_fsdp", [](const E& e) { return plan::memory_with_fsdp(e.setup->plan, e.setup->config); }, "", "closed form, with FSDP"},
      {"without_fsdp", [](const E& e) { return plan::memory_without_fsdp(e.setup->plan, e.setup->config); }, "", "closed form, without FSDP"},
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
    {"prediction", &E::prediction, "", "the step, predicted"},
    {"wasted_gathers", [](const E& e) { return each_of(*e.setup, e.wasted); }, "", "all-gathers that are wasted"},
    {"schedule", {"Schedule", "The steady step.", "schedule/build_schedules.h", {
      {"collectives", [](const E& e) { return schedule::collective_order(e.setup->plan, e.setup->schedules.steady()); }, "", "order of collectives"},
      {"issue", [](const E& e) { return schedule::issue_order(e.setup->plan, e.setup->schedules.steady()); }, "", "order of issue"},
      {"ops", [](const E& e) { return each_of(*e.setup, e.setup->schedules.steady().ops); }, "", "ops in the order of issue"},
    }}},
  }};
}
// clang-format on

std::string explain_text(const engine::Setup& p, const Prediction& prediction) {
  std::string text = explained_headline(p) + "\n";
  text += units_table(p.plan) + "\n";
  text += memory_table(p) + "\n";
  text += communication_table(p) + "\n";
  if (p.plan.mesh.tensor > 1) text += groups_table(p.plan) + "\n";
  text += prediction_text(prediction) + "\n";
  text += "Collectives, steady state (* prefetched in backward, | between forward and backward)\n  " +
          short_order(schedule::collective_order(p.plan, p.schedules.steady())) + "\n\n";
  if (p.plan.mesh.tensor > 1) {
    text += fmt::format("Beside these {} exchanges among ranks that split layers (--schedule=LAYER shows where)\n\n",
                        std::ranges::count_if(p.schedules.steady().ops, &schedule::Op::exchanges_parts));
  }
  text += wasted_lines(p);
  return text + "More: --schedule, --schedule=LAYER, --format json\n";
}

std::string explain_summary(const engine::Setup& p, const Prediction& prediction) {
  const PoolStatistics& peak = p.memory;
  const plan::MemoryEstimate with = plan::memory_with_fsdp(p.plan, p.config);
  const plan::MemoryEstimate without = plan::memory_without_fsdp(p.plan, p.config);
  const plan::CommunicationVolume v = volume(p);
  const double parallel = plan::data_parallel_volume(p.plan, p.config);
  Table table;
  table.rows.push_back({"peak memory", format_bytes(peak.peak_occupied_total), "a rank, exact, activations included"});
  for (MemoryCategory c : kMemoryCategories) {
    std::string name = "  " + std::string(to_string(c));
    std::ranges::replace(name, '_', ' ');
    table.rows.push_back({std::move(name), format_bytes(peak.peak_occupied[index_of(c)]), "its own peak"});
  }
  if (p.host_memory.peak_occupied_total > 0) {
    table.rows.push_back({"pinned host memory", format_bytes(p.host_memory.peak_occupied_total), "a rank, exact"});
  }
  table.rows.push_back({"states", decimal_bytes(states(with)), decimal_bytes(states(without)) + " without FSDP"});
  table.rows.push_back({"bytes sent", decimal_bytes(v.total()),
                        parallel > 0
                            ? fmt::format("a rank and step, {:.3f} times data parallel's", v.total() / parallel)
                            : "a rank and step"});
  const std::string wasted = wasted_lines(p);
  return explained_headline(p) + "\n" + format_table(table) + (wasted.empty() ? "" : "\n" + wasted) + "\n" +
         prediction_text(prediction);
}

std::string schedule_text(const engine::Setup& p, const std::string& which) {
  const schedule::Schedule& steady = p.schedules.steady();
  const OpChoice choice(p.plan, which);
  std::string text = explained_headline(p) + "\n";
  text += fmt::format("Schedule of one step{}, steady state: what the host issues, in order (+ allocates, - frees)\n",
                      which == kWholeSchedule ? "" : ", " + which + " of it");
  std::istringstream lines(schedule::op_list(p.plan, steady));
  std::string line;
  for (const schedule::Op& op : steady.ops) {
    std::getline(lines, line);
    if (choice.holds(op)) text += line + "\n";
  }
  return text;
}

nlohmann::json explain_json(const engine::Setup& p, const Prediction& prediction) {
  return fields<Explained>().write({&p, &prediction, schedule::wasted_gathers(p.plan, p.schedules.steady())});
}

const ObjectFacts& explain_file_facts() { return fields<Explained>().facts(); }

}  // namespace fsdpbench::app
