#include "runs/result_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "account/advice.h"
#include "account/cause.h"
#include "account/caveats.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "base/enum_table.h"
#include "base/lane.h"
#include "plan/plan.h"
#include "record/json_part.h"

namespace fsdpbench::app {
namespace {

using AllocatorStatistics = clock::CachingAllocator::Statistics;
using account::Cause;
using account::CauseReport;
using account::CauseShare;
using account::Counterfactual;
using account::Fidelity;
using account::Lateness;
using account::LateRank;
using account::ModelFlops;
using account::ModelledTime;
using account::PathKind;
using account::PathRank;
using account::PathSegment;
using account::RankMetrics;
using account::RunMetrics;
using account::Settling;
using account::StepJitter;
using account::Summary;
using nlohmann::json;
using plan::CommunicationVolume;

/// A count of bytes that is a double where it is computed.
struct WholeBytes {
  static json write(double value) { return std::llround(value); }
  static void read(const JsonPart& j, double& into) { into = j.number(); }
  static TypeFacts facts() { return {"whole number"}; }
};

/// A number for each group that ranks communicate in, of those that have one.
struct ByGroup {
  using Values = std::array<double, plan::kGroupCount>;
  static json write(const Values& values) {
    json j;
    for (const plan::Group g : kEnumerators<plan::Group>) {
      if (const double value = values[static_cast<std::size_t>(g)]; value > 0) j[std::string(to_string(g))] = value;
    }
    return j;
  }
  static void read(const JsonPart& j, Values& into) {
    for (const plan::Group g : kEnumerators<plan::Group>) {
      into[static_cast<std::size_t>(g)] = j.number(std::string(to_string(g)), 0);
    }
  }
  static TypeFacts facts() { return {"map of number"}; }
};

/// Place of each rank: its number, its host, and what its device says of itself.
struct Places {
  static json write(const std::vector<World::RankPlace>& places) {
    json list = json::array();
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      json& place = list.emplace_back(json{{"rank", rank}, {"host", places[rank].host}});
      for (const auto& [name, value] : places[rank].device) place[name] = value;
    }
    return list;
  }
  static void read(const JsonPart& j, std::vector<World::RankPlace>& places) {
    for (const JsonPart& device : j.list()) {
      World::RankPlace& place = places.emplace_back();
      place.host = device.at("host").text();
      for (const auto& [name, value] : device.members()) {
        if (name != "rank" && name != "host") place.device.emplace_back(name, value.text());
      }
    }
  }
  static TypeFacts facts() { return {"list of map of any"}; }
};

bool was_measured(const Trial& trial) { return trial.metrics.has_value(); }
std::string why_not_rated(const Trial& trial) { return trial.causes ? account::why_not_rated(trial.fidelity) : ""; }
bool is_rated(const Trial& trial) { return trial.causes && why_not_rated(trial).empty(); }

/// Completes what was read: the step time that causes are of. Without one the file is damaged.
void complete_causes(Trial& trial) {
  if (!trial.metrics) trial.causes.reset();
  if (trial.causes) trial.causes->step_ms = trial.metrics->step_ms.median;
}

/// Checks what a measured trial must have beside its metrics.
void check_trial(const JsonPart& j) {
  if (!j.has("metrics")) return;
  (void)j.at("comm");
  (void)j.at("stalled_ms");
  if (j.flag("rated", true)) (void)j.at("causes");
}

/// The number that stands for a figure: a summary's median, or the total of bytes by kind.
double value_of_figure(const json& value) {
  if (!value.is_object()) return value.get<double>();
  for (const char* whole : {"median", "total"}) {
    if (value.contains(whole)) return value[whole].get<double>();
  }
  double sum = 0;
  for (const json& one : value) sum += one.get<double>();
  return sum;
}

void find_figures(const ObjectFacts& facts, const json& object, const std::string& path,
                  std::vector<TrialFigure>& figures) {
  for (const FieldFacts& field : facts.fields) {
    const auto value = object.find(field.name);
    if (value == object.end()) continue;
    const std::string name = path + field.name;
    if (!field.figure.label.empty()) {
      figures.push_back({name, &field, value_of_figure(*value)});
    } else if (value->is_object() && field.type.object != nullptr) {
      find_figures(*field.type.object, *value, name + '.', figures);
    }
  }
}

/// A cause by its name.
struct CauseName : JsonType<Cause> {
  static void read(const JsonPart& j, Cause& into) {
    const std::optional<Cause> cause = account::cause_named(j.text());
    if (!cause) j.refuse("the name of a cause");
    into = *cause;
  }
};

/// Completes the part of a counterfactual that a share of a cause has, too.
void complete_counterfactual(CauseShare& share) {
  if (!share.without) return;
  share.without->cause = share.cause;
  share.without->late_rank = share.late_rank;
}

}  // namespace

// clang-format off
template <>
Fields<Summary> declared() {
  return {"Summary", "A median and how far it can be trusted.", "account/statistics.h", {
    {"median", &Summary::median, "", "median of the values"},
    {"ci_low", &Summary::ci_low, "", "lower end of the interval of the median"},
    {"ci_high", &Summary::ci_high, "", "upper end of that interval"},
    {"interval", written(&Summary::interval), "", "what the two ends are: `95 % bootstrap` from five values on, else the `range`, or `one value`"},
    {"min", &Summary::min, "", "smallest value"},
    {"max", &Summary::max, "", "largest value"},
    {"n", &Summary::n, "", "number of values"},
    then([](Summary& s) { s.interval = account::interval_of(s.n); }),
  }};
}

template <>
Fields<CommunicationVolume> declared() {
  using V = CommunicationVolume;
  return {"WireBytes", "Bytes that a rank sends in a step.", "plan/communication.h", {
    {"all_gather", as<WholeBytes>(&V::all_gather), "B", "by all-gathers", check_not_negative},
    {"reduce_scatter", as<WholeBytes>(&V::reduce_scatter), "B", "by reduce-scatters", check_not_negative},
    {"all_reduce", as<WholeBytes>(&V::all_reduce), "B", "by all-reduces", check_not_negative},
    {"all_to_all", as<WholeBytes>(&V::all_to_all), "B", "by exchanges of rows of experts"},
  }};
}

template <>
Fields<PoolStatistics> declared() {
  return {"BytesByCategory", "Peak bytes of a rank, together and by what they are for.", "base/lane_pool.h", {
    {"total", &PoolStatistics::peak_occupied_total, "B", "peak of all categories together"},
    by_category<PoolStatistics>(&PoolStatistics::peak_occupied, "peak of this category alone"),
  }};
}

template <>
Fields<World> declared() {
  return {"World", "Program, machine and launcher that a result was measured with.", "runs/world.h", {
    {"version", via(&World::program, &BuildInfo::version), "", "version of this program"},
    {"git_revision", via(&World::program, &BuildInfo::git_revision), "", "revision that the program was built from"},
    {"git_dirty", via(&World::program, &BuildInfo::git_dirty), "", "whether files differed from that revision"},
    {"build_type", via(&World::program, &BuildInfo::build_type), "", "CMake's build type"},
    {"compiler", via(&World::program, &BuildInfo::compiler), "", "compiler that built the program"},
    {"sanitize", via(&World::program, &BuildInfo::sanitize), "", "sanitizers that the program was built with", if_any},
    {"command_line", &World::command_line, "", "the command line as it was given"},
    {"date", &World::date, "", "ISO 8601, local time with offset; empty for simulations"},
    {"backend", &World::backend, "", "`device.backend`: `cpu`, `cuda`, or `virtual` for simulations"},
    {"launch", {"Launch", "Launcher of the ranks.", "launch/session.h", {
      {"ranks", &World::ranks, "", "number of ranks"},
      {"source", &World::launcher, "", "who started them"},
      {"transport", &World::transport, "", "how the ranks' processes communicate; absent if ranks are threads", if_any},
    }}},
    {"cpu", &World::cpu, "", "name of the processor"},
    {"threads", &World::threads, "", "hardware threads that the program may use"},
    {"memory_bytes", &World::memory_bytes, "B", "memory of the machine"},
    {"kernel", &World::kernel, "", "version of the operating system's kernel"},
    {"realtime", &World::realtime, "", "scheduling class of the threads that wait for a point in time"},
    {"libraries", &World::libraries, "", "versions of libraries, by name"},
    {"emulated_link", &World::emulated_link, "", "whether links were emulated"},
    {"emulated_compute", &World::emulated_compute, "", "whether computation was emulated"},
    {"simulated", &World::simulated, "", "whether times are those of a computed clock"},
    {"devices", as<Places>(&World::places), "", "for each rank `rank`, `host`, and what its device reports about itself; absent for simulations", if_any},
  }};
}

// Fields of a trial, from the inside out.
template <>
Fields<ModelledTime> declared() {
  return {"ModelledTime", "Time of a rank's median step, as it is emulated.", "account/fidelity.h", {
    {"modelled_ms", &ModelledTime::modelled_ms, "ms", "time by the model"},
    {"observed_ms", &ModelledTime::observed_ms, "ms", "time as it was measured"},
  }};
}

template <>
Fields<Fidelity> declared() {
  return {"EmulationFidelity", "Fidelity of a machine to what it emulated.", "account/fidelity.h", {
    {"compute", &Fidelity::compute, "", "computation; absent if it is real"},
    {"transfer", &Fidelity::transfer, "", "transfers that did not share their links with others"},
    {"excess_pct", &Fidelity::excess_pct, "%", "by how much observed time exceeds modelled time, computation and transfers together"},
    {"late_pct", &Fidelity::late_pct, "%", "by how much the step exceeds what its op times allow, because lanes began late; only where computation is emulated and no lateness was injected"},
    {"limit_pct", [](const Fidelity&) { return account::kFidelityLimitPct; }, "%", "largest excess of both together with which a run is rated"},
  }};
}

template <>
Fields<AllocatorStatistics> declared() {
  using S = AllocatorStatistics;
  return {"CachingAllocator", "Memory of rank 0 as PyTorch's CUDA caching allocator would show it on a GPU of the cluster, at the op times before anything is drawn ([simulate.md](simulate.md#memory)).", "clock/caching_allocator.h", {
    {"peak_allocated_bytes", &S::peak_allocated, "B", "as `torch.cuda.max_memory_allocated()`"},
    {"peak_reserved_bytes", &S::peak_reserved, "B", "as `torch.cuda.max_memory_reserved()`"},
    {"retries", &S::retries, "", "allocations in the first steps for which it would return cached memory to the driver, while the host waits"},
    {"failures", &S::failures, "", "allocations that would find no memory even then: the training does not fit if there are any"},
  }};
}

template <>
Fields<RankMetrics> declared() {
  using R = RankMetrics;
  return {"RankMetrics", "One rank's own steps. The four parts add up to the median of `step_ms`.", "account/run_metrics.h", {
    {"rank", &R::rank, "", "number of the rank"},
    {"step_ms", &R::step_ms, "ms", "step times of the rank"},
    {"compute_ms", &R::compute_ms, "ms", "time in which computation ran"},
    {"exposed_comm_ms", &R::exposed_comm_ms, "ms", "time in which a collective ran and nothing was computed"},
    {"exposed_copy_ms", &R::exposed_copy_ms, "ms", "time in which only a copy ran"},
    {"idle_ms", &R::idle_ms, "ms", "time in which nothing ran"},
    {"overlap_pct", &R::overlap_pct, "%", "share of its communication that is hidden; absent without communication"},
    {"transfer_ms", as<ByGroup>(&R::transfer_ms), "ms", "transfers of a step, by link (that is, by group it communicates in). Each transfer counts from the arrival of its last peer until this link was done with it (modelled links) or the transfer ended; the median over the steps", if_any},
  }};
}

template <>
Fields<RunMetrics> declared() {
  using M = RunMetrics;
  return {"RunMetrics", "Time of a step and its parts.", "account/run_metrics.h", {
    {"step_ms", &M::step_ms, "ms", "step time; each step counts with its slowest rank", check_step_time, less("step time", Gated::judged)},
    {"compute_ms", &M::compute_ms, "ms", "time in which computation ran", check_not_negative, less("compute", Gated::explains)},
    {"comm_ms", &M::comm_ms, "ms", "time in which a collective ran, exposed or hidden", check_not_negative, less("communication")},
    {"exposed_comm_ms", &M::exposed_comm_ms, "ms", "time in which a collective ran and nothing was computed", check_not_negative, less("exposed communication", Gated::explains)},
    {"exposed_copy_ms", &M::exposed_copy_ms, "ms", "time in which only a copy ran", check_not_negative, less("exposed copies")},
    {"idle_ms", &M::idle_ms, "ms", "time in which nothing ran", check_not_negative, less("idle")},
    {"overlap_pct", &M::overlap_pct, "%", "share of communication that is hidden: 1 - exposed_comm_ms / comm_ms; absent without communication", more("overlap")},
    {"tokens_per_s", &M::tokens_per_s, "1/s", "tokens of all ranks per second, at the median step", more("tokens/s")},
    {"step_over_bound", &M::bound_ratio, "", "step time divided by the shortest time in which the schedule could run with the measured op times", less("step / bound")},
    {"aa_noise_pct", &M::aa_noise_pct, "%", "the medians of two random halves of the measured steps differ by less than this, 95 times out of 100; absent for fewer than four steps", less("A/A noise")},
    {"ranks", &M::ranks, "", "each rank's own steps", if_any},
  }};
}

template <>
Fields<Settling> declared() {
  return {"Settling", "", "account/late_ranks.h", {
    {"unsettled_steps", &Settling::unsettled, "", "number of first measured steps that differ from the rest; absent for fewer than eight steps", less("unsettled steps")},
    {"never_settled", &Settling::never_settled, "", "true if no steady state was found; absent for fewer than eight steps"},
  }};
}

template <>
Fields<ModelFlops> declared() {
  return {"ModelFlops", "", "account/run_metrics.h", {
    {"model_tflops_per_rank", &ModelFlops::tflops_per_rank, "TFLOP/s", "rate of the model's FLOPs at the median step", more("model TFLOP/s")},
    {"model_flops_per_rank_and_step", &ModelFlops::per_rank_and_step, "FLOP", "FLOPs of the model's forward and backward, without recomputation", less("model FLOPs")},
    {"peak_tflops", &ModelFlops::peak_tflops, "TFLOP/s", "stated peak of a rank: of the cluster file for the dtype of parameters (dense), or `emulate.compute_tflops`", more("peak TFLOP/s")},
    {"mfu_pct", &ModelFlops::mfu_pct, "%", "model FLOPs utilisation: that rate divided by `peak_tflops`", more("utilisation")},
  }};
}

const Fields<Trial>& metrics_fields() {
  static const Fields<Trial> kAll{"Metrics", "Time of a step and its parts: compute + exposed communication + exposed copies + idle = `step_ms.median`. The parts are means over all ranks ([run.md](run.md#what-a-step-is-made-of)).", "account/run_metrics.h", {
    Rule{[](const JsonPart& j) { (void)j.at("step_ms"); }},
    spread(&Trial::metrics),
    spread([](auto& t) -> auto& { return t.metrics->settling; }),
    spread(&Trial::flops),
    {"emulation_fidelity", &Trial::fidelity, "", "how well the machine kept up with what it emulates; only if something is emulated"},
  }};
  return kAll;
}

const Fields<Trial>& memory_fields() {
  static const Fields<Trial> kAll{"Memory", "Device memory of the rank that needed most.", "base/lane_pool.h", {
    {"peak_bytes", &Trial::memory, "B", "peak as counted in the run", less("peak memory", Gated::judged)},
    {"reserved_bytes", via(&Trial::memory, &PoolStatistics::reserved), "B", "memory that its pool reserved"},
    {"estimated_peak_bytes", &Trial::estimated_memory, "B", "peak that the schedule predicts"},
    {"device_bytes", &Trial::device_bytes, "B", "memory of the simulated GPU"},
    {"fits", &Trial::fits, "", "whether the training fits into it: under PyTorch's allocator if that is known, else what its pool reserved"},
    {"caching_allocator", &Trial::caching_allocator, "", "the same training's memory under PyTorch's allocator; only of simulations on a cluster"},
  }};
  return kAll;
}

const Fields<Trial>& comm_fields() {
  static const Fields<Trial> kAll{"Comm", "Bytes that a rank sent in a step.", "plan/communication.h", {
    {"wire_bytes_per_rank", &Trial::wire, "B", "bytes as counted", less("bytes on the wire", Gated::judged)},
    {"expected_wire_bytes_per_rank", &Trial::expected_wire, "B", "bytes that the schedule says"},
  }};
  return kAll;
}

const Fields<RunMetrics>& step_times_fields() {
  static const Fields<RunMetrics> kAll{"", "", "account/run_metrics.h", {
    {"steps_ms", &RunMetrics::steps_ms, "ms", "each measured step, of its slowest rank", check_step_times},
  }};
  return kAll;
}
const Fields<Trial>& trial_fields() {
  static const Fields<Trial> kAll{"Trial", "One timed run of a configuration. What was not measured is absent.", "runs/trial.h", {
    Rule{check_trial},
    {"world", &Trial::world, "", "what it was measured with"},
    {"others_share", &Trial::others_share, "", "share of the busiest host's processors that other programs took meanwhile, as a fraction; not of simulations", check_share, if_any},
    {"metrics", metrics_fields(), when(was_measured)},
    {"memory", memory_fields()},
    {"host_memory", {"HostMemory", "Pinned host memory of the rank that needed most ([offload.md](offload.md)).", "base/lane_pool.h", {
      {"peak_bytes", &Trial::host_memory, "B", "peak as counted in the run"},
      {"reserved_bytes", via(&Trial::host_memory, &PoolStatistics::reserved), "B", "memory that its pool reserved"},
    }}, when(via(&Trial::host_memory, &PoolStatistics::reserved))},
    {"comm", comm_fields(), when(was_measured)},
    {"caveats", &Trial::caveats, "", "sentences to read before any number, the most serious first; the printed table begins with them", if_any},
    spread(&Trial::causes, stall_fields()),
    {"rated", is_rated, "", "whether the numbers describe what was asked for: false if the machine could not keep up with what it emulates", when(&Trial::causes)},
    {"not_rated_because", why_not_rated, "", "why the run is not rated; there are no causes then", if_any},
    {spread(&Trial::causes, cause_fields()), when(is_rated)},
    then(complete_causes),
  }};
  return kAll;
}

template <>
Fields<Trial> declared() {
  return {"Trial", trial_fields().facts().meaning, "runs/trial.h", {
    spread(kItself, trial_fields()),
    {"seconds", &Trial::seconds, "s", "time from the first preparation to the last number", if_any},
    // Only written: a whole result has them elsewhere, and trial_from_json() knows where.
    spread(written(&Trial::metrics), step_times_fields()),
  }};
}
// clang-format on

json to_json(const World& world) { return fields<World>().write(world); }
json to_json(const Trial& trial) { return fields<Trial>().write(trial); }

Trial trial_from_json(const JsonPart& j) {
  Trial trial = fields<Trial>().read(j);
  trial.interrupted = !j.flag("complete", true);
  if (trial.metrics) {
    const JsonPart times = j.has("steps_ms") ? j.at("steps_ms") : j.at("steps").at("slowest_rank_ms");
    check_step_times(times);
    JsonType<std::vector<double>>::read(times, trial.metrics->steps_ms);
  }
  return trial;
}

Trial trial_from_json(const json& j) { return trial_from_json(JsonPart(j)); }

void check_interval(const JsonPart& j) {
  const double median = j.at("median").number();
  (void)j.at("n").whole(1, 1'000'000'000);
  if (!(j.at("ci_low").number() <= median && median <= j.at("ci_high").number())) {
    j.refuse("a median between ci_low and ci_high");
  }
}

void check_step_time(const JsonPart& j) {
  check_interval(j);
  check_positive(j.at("ci_low"));
}

void check_step_times(const JsonPart& times) {
  if (times.list().empty()) times.refuse("a time or more");
  for (const JsonPart& time : times.list()) check_positive(time);
}

const FieldFacts& figure_at(std::string_view path) {
  const ObjectFacts* object = &trial_fields().facts();
  for (;;) {
    const std::size_t dot = path.find('.');
    const auto field = std::ranges::find(object->fields, path.substr(0, dot), &FieldFacts::name);
    if (field == object->fields.end()) throw std::logic_error(fmt::format("no field {} in a trial", path));
    if (dot == std::string_view::npos) return *field;
    object = field->type.object;
    path.remove_prefix(dot + 1);
  }
}

std::vector<TrialFigure> figures_of(const Trial& trial) {
  std::vector<TrialFigure> figures;
  find_figures(trial_fields().facts(), trial_fields().write(trial), "", figures);
  return figures;
}

// clang-format off
template <>
Fields<StepJitter> declared() {
  return {"Jitter", "Time of the median step beyond the typical one.", "account/cause_report.h", {
    {"ms", &StepJitter::ms, "ms", "the difference; negative where the median step was shorter"},
    {"share_pct", &StepJitter::share_pct, "%", "of the median step"},
    {"compute_ms", &StepJitter::computation_ms, "ms", "of it, in computation"},
    {"stalled_ms", &StepJitter::stalled_ms, "ms", "of it, while nothing computed: no cause has any of it"},
  }};
}

template <>
Fields<Lateness> declared() {
  return {"Lateness", "Comparison of a late rank with the others.", "account/late_ranks.h", {
    {"trials", &Lateness::trials, "", "how often ranks were compared"},
    {"late", &Lateness::late, "", "how often at least half of all ranks were faster"},
    {"by_chance", &Lateness::by_chance, "", "how likely that is if no rank differs"},
    {"excess_ms", &Lateness::excess_ms, "ms", "of a step, what it took beyond the median of the others"},
    then([](Lateness& lateness) { lateness.significant = true; }),
  }};
}

template <>
Fields<LateRank> declared() {
  return {"LateRank", "A rank that takes longer than the others for certain.", "account/typical_step.h", {
    {"rank", &LateRank::rank, "", "number of the rank"},
    {"work", &LateRank::work, "", "its own ops take longer"},
    {"issue", &LateRank::issue, "", "its host takes longer"},
    {"link", &LateRank::link, "", "its link takes longer"},
  }};
}

template <>
Fields<Counterfactual> declared() {
  using C = Counterfactual;
  return {"Counterfactual", "The typical step replayed without one thing, or with another value of one key.", "account/counterfactual.h", {
    {"step_ms", &C::step_ms, "ms", "what the step would take"},
    {"gain_ms", &C::gain_ms, "ms", "how much less that is than the typical step; negative: more"},
    {"ci_low", &C::ci_low, "ms", "lower end of the interval of the gain"},
    {"ci_high", &C::ci_high, "ms", "upper end of that interval"},
    {"interval", &C::interval, "", "what the two ends are, as in a summary"},
    {"advised", &C::advised, "", "the interval is above 0 and the gain above the noise"},
    {"more_bytes", as<SignedWhole>(&C::more_bytes), "B", "more peak memory that it takes"},
  }};
}

template <>
Fields<CauseShare> declared() {
  using C = CauseShare;
  return {"Cause", "Why computation was not running: a mean over all ranks in the typical step.", "account/counterfactual.h", {
    {"cause", as<CauseName>(&C::cause), "", "name of the cause ([explain.md](explain.md))"},
    {"ms", &C::ms, "ms", "time of a step that it takes"},
    {"share_pct", &C::share_pct, "%", "share of the step"},
    {"unit", &C::unit, "", "the unit that lost most to it", if_any},
    {"op", &C::op, "", "the op that was waited for there, as traces name it", if_any},
    {"late_rank", &C::late_rank, "", "rank that came last most of the time, or whose link is slow", if_known},
    {"advice", &C::advice, "", "a sentence that says what would help; empty if nothing is known for certain"},
    {"without", &C::without, "", "typical step without the cause"},
    then(complete_counterfactual),
  }};
}

namespace {

/// Another value of a key, and what it would bring.
const Fields<Counterfactual>& knob_fields() {
  using C = Counterfactual;
  static const Fields<Counterfactual> kAll{"Knob", "A key that could be turned and gains more than the noise.", "account/counterfactual.h", {
    {"set", &C::set, "", "the change, as `key=value`"},
    {"cause", as<CauseName>(&C::cause), "", "the cause that it is meant for"},
    spread(kItself),
    {"advice", [](const C& c) { return account::knob_sentence(c); }, "", "a sentence that says what the change gains; absent unless the change is advised", when(&C::advised)},
  }};
  return kAll;
}

}  // namespace

const Fields<CauseReport>& cause_fields() {
  using R = CauseReport;
  static const Fields<CauseReport> kAll{"Causes", "", "account/cause_report.h", {
    {"causes", &R::causes, "", "why computation was not running, the largest cause first. Together with `jitter.stalled_ms` they add up to the time without computation. Causes under 2 % of the step are only in `causes_small_ms`, unless removing them would gain that much"},
    {"causes_small_ms", &R::small_ms, "ms", "all causes that are not listed, together"},
    {"typical_ms", &R::typical_ms, "ms", "the typical step ([explain.md](explain.md)), of its slowest rank; where there is none, the median step"},
    {"no_typical_step_because", &R::no_typical_because, "", "why there is no typical step: what the recorded ranks lack, a sentence", if_any},
    {"jitter", &R::jitter, "", "what the median step took beyond the typical one; absent without a typical step"},
    {"late_ranks", &R::late_ranks, "", "ranks that are certain to take longer than the others ([explain.md](explain.md))"},
    {"knobs", as<ListOf<knob_fields>>(&R::knobs), "", "keys whose change would gain more than the noise, the largest gain first"},
  }};
  return kAll;
}

const Fields<CauseReport>& stall_fields() {
  static const Fields<CauseReport> kAll{"Stalls", "", "account/cause_report.h", {
    {"stalled_ms", &CauseReport::stalled_ms, "ms", "exposed communication + exposed copies + idle"},
  }};
  return kAll;
}
template <>
Fields<PathRank> declared() {
  using P = PathRank;
  return {"PathRank", "Share of one rank in the critical path.", "account/critical_path.h", {
    {"rank", &P::rank, "", "number of the rank"},
    {"ms", &P::ms, "ms", "its part of the path, mean over steps"},
    {"share_pct", &P::share_pct, "%", "share of the path"},
    {"kinds_ms", as<EnumMap<PathKind>>(&P::kinds_ms), "ms", "`ms` by kind: `kernels`, `collectives`, `copies`, `host`, `waits` (for a rank whose records are missing, or for a processor core), `unknown`"},
  }};
}

template <>
Fields<PathSegment> declared() {
  using S = PathSegment;
  return {"PathSegment", "Neighbours on the critical path that are of one rank and kind.", "account/critical_path.h", {
    {"rank", &S::rank, "", "number of the rank"},
    {"kind", &S::kind, "", "as in `kinds_ms`"},
    {"begin_us", &S::begin_us, "us", "since the step began"},
    {"us", &S::us, "us", "how long it is"},
    {"parts", &S::parts, "", "how many ops, rows of a trace and gaps it is made of"},
    {"row", &S::row, "", "the op or row that has most of it, or that began after it", if_any},
  }};
}

template <>
Fields<account::PathReport> declared() {
  using P = account::PathReport;
  return {"CriticalPath", "The chain of kernels, collectives, copies and host work that decided how long steps were.", "account/critical_path.h", {
    {"ranks", &P::ranks, "", "ranks on the path, the most first; their `ms` add up to the mean step of the slowest rank"},
    {"step", &P::step, "", "number of the step of median length, which `segments` is of"},
    {"segments", &P::segments, "", "the path of that step in order of time; together exactly the step"},
  }};
}
// clang-format on

}  // namespace fsdpbench::app
