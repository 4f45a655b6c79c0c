#include "runs/result_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "account/caveats.h"
#include "plan/plan.h"

namespace fsdpbench::app {
namespace {

using AllocatorStatistics = clock::CachingAllocator::Statistics;
using account::Fidelity;
using account::ModelFlops;
using account::ModelledTime;
using account::RankMetrics;
using account::RunMetrics;
using account::Settling;
using account::Summary;
using nlohmann::json;
using plan::CommunicationVolume;

}  // namespace

template <>
const Fields<ModelledTime>& fields<ModelledTime>();
template <>
const Fields<Fidelity>& fields<Fidelity>();
template <>
const Fields<AllocatorStatistics>& fields<AllocatorStatistics>();
template <>
const Fields<RankMetrics>& fields<RankMetrics>();
template <>
const Fields<RunMetrics>& fields<RunMetrics>();
template <>
const Fields<Settling>& fields<Settling>();
template <>
const Fields<ModelFlops>& fields<ModelFlops>();

namespace {

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

/// Where each rank ran: its number, its host, and what its device says of itself.
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
bool is_rated(const Trial& trial) { return trial.causes && account::why_not_rated(trial.fidelity).empty(); }

}  // namespace

template <>
const Fields<Summary>& fields<Summary>() {
  static const auto kAll = declare<Summary>(
      "Summary", "A median and how far it can be trusted.", "account/statistics.h", [](Fields<Summary>& f) {
        f("median", &Summary::median, "", "median of the values");
        f("ci_low", &Summary::ci_low, "", "lower end of the interval of the median");
        f("ci_high", &Summary::ci_high, "", "upper end of that interval");
        f(
            "interval", [](const Summary& s) { return s.interval; }, "",
            "what the two ends are: `95 % bootstrap` from five values on, else the `range`, or `one value`");
        f("min", &Summary::min, "", "smallest value");
        f("max", &Summary::max, "", "largest value");
        f("n", &Summary::n, "", "number of values");
        f.then([](const JsonPart&, Summary& s) { s.interval = account::interval_of(s.n); });
      });
  return kAll;
}

template <>
const Fields<CommunicationVolume>& fields<CommunicationVolume>() {
  using V = CommunicationVolume;
  static const auto kAll =
      declare<V>("WireBytes", "Bytes that a rank sends in a step.", "plan/communication.h", [](Fields<V>& f) {
        f.operator()<WholeBytes>("all_gather", &V::all_gather, "B", "by all-gathers", {.check = check_not_negative});
        f.operator()<WholeBytes>("reduce_scatter", &V::reduce_scatter, "B", "by reduce-scatters",
                                 {.check = check_not_negative});
        f.operator()<WholeBytes>("all_reduce", &V::all_reduce, "B", "by all-reduces", {.check = check_not_negative});
        f.operator()<WholeBytes>("all_to_all", &V::all_to_all, "B",
                                 "by exchanges of quantised gradients, or of rows of experts");
        f.operator()<WholeBytes>("send_recv", &V::send_recv, "B", "from rank to rank, where keys and values go round",
                                 {.when = When::if_any, .check = check_not_negative});
      });
  return kAll;
}

template <>
const Fields<PoolStatistics>& fields<PoolStatistics>() {
  static const auto kAll = declare<PoolStatistics>(
      "BytesByCategory", "Peak bytes of a rank, together and by what they are for.", "base/lane_pool.h",
      [](Fields<PoolStatistics>& f) {
        f("total", &PoolStatistics::peak_occupied_total, "B", "peak of all categories together");
        for (const MemoryCategory c : kMemoryCategories) {
          const std::size_t i = index_of(c);
          f(
              std::string(to_string(c)), [i](auto& pool) -> auto& { return pool.peak_occupied[i]; }, "B",
              "peak of this category alone");
        }
      });
  return kAll;
}

namespace {

template <class T>
using Of = const Fields<T>&;

Of<World> launch_fields() {
  static const auto kAll = declare<World>("Launch", "Who started the ranks.", "launch/session.h", [](Fields<World>& f) {
    f("ranks", &World::ranks, "", "number of ranks");
    f("source", &World::launcher, "", "who started them");
    f("transport", &World::transport, "", "how the ranks' processes communicate; absent if ranks are threads",
      {.when = When::if_any});
  });
  return kAll;
}

}  // namespace

template <>
const Fields<World>& fields<World>() {
  static const auto kAll =
      declare<World>("World", "What a result was measured with.", "runs/world.h", [](Fields<World>& f) {
        f(
            "version", [](auto& w) -> auto& { return w.program.version; }, "", "version of this program");
        f(
            "git_revision", [](auto& w) -> auto& { return w.program.git_revision; }, "",
            "revision that the program was built from");
        f(
            "git_dirty", [](auto& w) -> auto& { return w.program.git_dirty; }, "",
            "whether files differed from that revision");
        f(
            "build_type", [](auto& w) -> auto& { return w.program.build_type; }, "", "CMake's build type");
        f(
            "compiler", [](auto& w) -> auto& { return w.program.compiler; }, "", "compiler that built the program");
        f("sanitize", [](auto& w) -> auto& { return w.program.sanitize; }, "",
          "sanitizers that the program was built with", {.when = When::if_any});
        f("command_line", &World::command_line, "", "the command line as it was given");
        f("date", &World::date, "", "ISO 8601, local time with offset; empty for simulations");
        f("backend", &World::backend, "", "`device.backend`: `cpu`, `cuda`, or `virtual` for simulations");
        f.part("launch", launch_fields());
        f("cpu", &World::cpu, "", "name of the processor");
        f("threads", &World::threads, "", "hardware threads that the program may use");
        f("memory_bytes", &World::memory_bytes, "B", "memory of the machine");
        f("kernel", &World::kernel, "", "version of the operating system's kernel");
        f("realtime", &World::realtime, "", "scheduling class of the threads that wait for a point in time");
        f("libraries", &World::libraries, "", "versions of libraries, by name");
        f("emulated_link", &World::emulated_link, "", "whether links were emulated");
        f("emulated_compute", &World::emulated_compute, "", "whether computation was emulated");
        f("simulated", &World::simulated, "", "whether times are those of a computed clock");
        f.operator()<Places>(
            "devices", &World::places, "",
            "for each rank `rank`, `host`, and what its device reports about itself; absent for simulations",
            {.when = When::if_any});
      });
  return kAll;
}

// What a trial is made of, from the inside out.
template <>
const Fields<ModelledTime>& fields<ModelledTime>() {
  static const auto kAll =
      declare<ModelledTime>("ModelledTime", "Time of a rank's median step, as it is emulated.", "account/fidelity.h",
                            [](Fields<ModelledTime>& f) {
                              f("modelled_ms", &ModelledTime::modelled_ms, "ms", "time by the model");
                              f("observed_ms", &ModelledTime::observed_ms, "ms", "time as it was measured");
                            });
  return kAll;
}

template <>
const Fields<Fidelity>& fields<Fidelity>() {
  static const auto kAll = declare<Fidelity>(
      "EmulationFidelity", "How well a machine kept up with what it emulated.", "account/fidelity.h",
      [](Fields<Fidelity>& f) {
        f("compute", &Fidelity::compute, "", "computation; absent if it is real");
        f("transfer", &Fidelity::transfer, "", "transfers that did not share their links with others");
        f("excess_pct", &Fidelity::excess_pct, "%",
          "by how much observed time exceeds modelled time, computation and transfers together");
        f("late_pct", &Fidelity::late_pct, "%",
          "by how much the step exceeds what its op times allow, because lanes began late; only where computation is "
          "emulated and no lateness was injected");
        f(
            "limit_pct", [](const Fidelity&) { return account::kFidelityLimitPct; }, "%",
            "largest excess of both together with which a run is rated");
      });
  return kAll;
}

template <>
const Fields<AllocatorStatistics>& fields<AllocatorStatistics>() {
  using S = AllocatorStatistics;
  static const auto kAll = declare<S>(
      "CachingAllocator",
      "What PyTorch's CUDA caching allocator would show of rank 0, on a GPU of the cluster, at the op times before "
      "anything is drawn ([simulate.md](simulate.md#memory)).",
      "clock/caching_allocator.h", [](Fields<S>& f) {
        f("peak_allocated_bytes", &S::peak_allocated, "B", "as `torch.cuda.max_memory_allocated()`");
        f("peak_reserved_bytes", &S::peak_reserved, "B", "as `torch.cuda.max_memory_reserved()`");
        f("retries", &S::retries, "",
          "allocations in the first steps for which it would return cached memory to the driver, while the host waits");
        f("failures", &S::failures, "",
          "allocations that would find no memory even then: the training does not fit if there are any");
      });
  return kAll;
}

template <>
const Fields<RankMetrics>& fields<RankMetrics>() {
  using R = RankMetrics;
  static const auto kAll = declare<R>(
      "RankMetrics", "One rank's own steps. The four parts add up to the median of `step_ms`.", "account/run_metrics.h",
      [](Fields<R>& f) {
        f("rank", &R::rank, "", "number of the rank");
        f("step_ms", &R::step_ms, "ms", "step times of the rank");
        f("compute_ms", &R::compute_ms, "ms", "time in which computation ran");
        f("exposed_comm_ms", &R::exposed_comm_ms, "ms", "time in which a collective ran and nothing was computed");
        f("exposed_copy_ms", &R::exposed_copy_ms, "ms", "time in which only a copy ran");
        f("idle_ms", &R::idle_ms, "ms", "time in which nothing ran");
        f("overlap_pct", &R::overlap_pct, "%",
          "share of its communication that is hidden; absent without communication");
        f.operator()<ByGroup>("transfer_ms", &R::transfer_ms, "ms",
                              "transfers of a step, by link (that is, by group it communicates in). Each transfer "
                              "counts from the arrival of its last peer until this link was done with it (modelled "
                              "links) or the transfer ended; the median over the steps",
                              {.when = When::if_any});
      });
  return kAll;
}

template <>
const Fields<RunMetrics>& fields<RunMetrics>() {
  using M = RunMetrics;
  static const auto kAll =
      declare<M>("RunMetrics", "What a step takes, and what it is made of.", "account/run_metrics.h", [](Fields<M>& f) {
        f("step_ms", &M::step_ms, "ms", "step time; each step counts with its slowest rank",
          {.check = check_step_time, .figure = {"step time", Better::less, Gated::judged}});
        f("compute_ms", &M::compute_ms, "ms", "time in which computation ran",
          {.check = check_not_negative, .figure = {"compute", Better::less, Gated::explains}});
        f("comm_ms", &M::comm_ms, "ms", "time in which a collective ran, exposed or hidden",
          {.check = check_not_negative, .figure = {"communication", Better::less}});
        f("exposed_comm_ms", &M::exposed_comm_ms, "ms", "time in which a collective ran and nothing was computed",
          {.check = check_not_negative, .figure = {"exposed communication", Better::less, Gated::explains}});
        f("exposed_copy_ms", &M::exposed_copy_ms, "ms", "time in which only a copy ran",
          {.check = check_not_negative, .figure = {"exposed copies", Better::less}});
        f("idle_ms", &M::idle_ms, "ms", "time in which nothing ran",
          {.check = check_not_negative, .figure = {"idle", Better::less}});
        f("overlap_pct", &M::overlap_pct, "%",
          "share of communication that is hidden: 1 - exposed_comm_ms / comm_ms; absent without communication",
          {.figure = {"overlap", Better::more}});
        f("tokens_per_s", &M::tokens_per_s, "1/s", "tokens of all ranks per second, at the median step",
          {.figure = {"tokens/s", Better::more}});
        f("step_over_bound", &M::bound_ratio, "",
          "step time divided by the shortest time in which the schedule could run with the measured op times",
          {.figure = {"step / bound", Better::less}});
        f("aa_noise_pct", &M::aa_noise_pct, "%",
          "the medians of two random halves of the measured steps differ by less than this, 95 times out of 100; "
          "absent for fewer than four steps",
          {.figure = {"A/A noise", Better::less}});
        f("ranks", &M::ranks, "", "each rank's own steps", {.when = When::if_any});
      });
  return kAll;
}

template <>
const Fields<Settling>& fields<Settling>() {
  static const auto kAll = declare<Settling>("Settling", "", "account/late_ranks.h", [](Fields<Settling>& f) {
    f("unsettled_steps", &Settling::unsettled, "",
      "number of first measured steps that differ from the rest; absent for fewer than eight steps",
      {.figure = {"unsettled steps", Better::less}});
    f("never_settled", &Settling::never_settled, "",
      "true if no steady state was found; absent for fewer than eight steps");
  });
  return kAll;
}

template <>
const Fields<ModelFlops>& fields<ModelFlops>() {
  static const auto kAll = declare<ModelFlops>("ModelFlops", "", "account/run_metrics.h", [](Fields<ModelFlops>& f) {
    f("model_tflops_per_rank", &ModelFlops::tflops_per_rank, "TFLOP/s", "rate of the model's FLOPs at the median step",
      {.figure = {"model TFLOP/s", Better::more}});
    f("model_flops_per_rank_and_step", &ModelFlops::per_rank_and_step, "FLOP",
      "FLOPs of the model's forward and backward, without recomputation", {.figure = {"model FLOPs", Better::less}});
    f("peak_tflops", &ModelFlops::peak_tflops, "TFLOP/s",
      "stated peak of a rank: of the cluster file for the dtype of parameters (dense), or `emulate.compute_tflops`",
      {.figure = {"peak TFLOP/s", Better::more}});
    f("mfu_pct", &ModelFlops::mfu_pct, "%", "model FLOPs utilisation: that rate divided by `peak_tflops`",
      {.figure = {"utilisation", Better::more}});
  });
  return kAll;
}

const Fields<Trial>& metrics_fields() {
  static const auto kAll = declare<Trial>(
      "Metrics",
      "What a step takes, and what it is made of: compute + exposed communication + exposed copies + idle = "
      "`step_ms.median`. The parts are means over all ranks ([run.md](run.md#what-a-step-is-made-of)).",
      "account/run_metrics.h", [](Fields<Trial>& f) {
        f.rule([](const JsonPart& j) { (void)j.at("step_ms"); });
        f.spread(&Trial::metrics, fields<RunMetrics>());
        f.spread(
            [](auto& t) -> auto& { return t.metrics->settling; }, fields<Settling>());
        f.spread(&Trial::flops, fields<ModelFlops>());
        f("emulation_fidelity", &Trial::fidelity, "",
          "how well the machine kept up with what it emulates; only if something is emulated");
      });
  return kAll;
}

const Fields<Trial>& memory_fields() {
  static const auto kAll =
      declare<Trial>("Memory", "Device memory of the rank that needed most.", "base/lane_pool.h", [](Fields<Trial>& f) {
        f("peak_bytes", &Trial::memory, "B", "peak as counted in the run",
          {.figure = {"peak memory", Better::less, Gated::judged}});
        f(
            "reserved_bytes", [](auto& t) -> auto& { return t.memory.reserved; }, "B", "memory that its pool reserved");
        f("estimated_peak_bytes", &Trial::estimated_memory, "B", "peak that the schedule predicts");
        f("device_bytes", &Trial::device_bytes, "B", "memory of the simulated GPU");
        f("fits", &Trial::fits, "",
          "whether the training fits into it: under PyTorch's allocator if that is known, else what its pool reserved");
        f("caching_allocator", &Trial::caching_allocator, "",
          "the same training's memory under PyTorch's allocator; only of simulations on a cluster");
      });
  return kAll;
}

const Fields<Trial>& comm_fields() {
  static const auto kAll =
      declare<Trial>("Comm", "What a rank sent in a step.", "plan/communication.h", [](Fields<Trial>& f) {
        f("wire_bytes_per_rank", &Trial::wire, "B", "bytes as counted",
          {.figure = {"bytes on the wire", Better::less, Gated::judged}});
        f("expected_wire_bytes_per_rank", &Trial::expected_wire, "B", "bytes by formula");
      });
  return kAll;
}

const Fields<RunMetrics>& step_times_fields() {
  static const auto kAll = declare<RunMetrics>("", "", "account/run_metrics.h", [](Fields<RunMetrics>& f) {
    f("steps_ms", &RunMetrics::steps_ms, "ms", "each measured step, of its slowest rank", {.check = check_step_times});
  });
  return kAll;
}

namespace {

Of<Trial> host_memory_fields() {
  static const auto kAll =
      declare<Trial>("HostMemory", "Pinned host memory of the rank that needed most ([offload.md](offload.md)).",
                     "base/lane_pool.h", [](Fields<Trial>& f) {
                       f("peak_bytes", &Trial::host_memory, "B", "peak as counted in the run");
                       f(
                           "reserved_bytes", [](auto& t) -> auto& { return t.host_memory.reserved; }, "B",
                           "memory that its pool reserved");
                     });
  return kAll;
}

/// What a trial that was measured must have beside its metrics.
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

}  // namespace

const Fields<Trial>& trial_fields() {
  static const auto kAll = declare<Trial>(
      "Trial", "One timed run of a configuration. What was not measured is absent.", "runs/trial.h",
      [](Fields<Trial>& f) {
        f.rule(check_trial);
        f("world", &Trial::world, "", "what it was measured with");
        f("others_share", &Trial::others_share, "",
          "share of the busiest host's processors that other programs took meanwhile, as a fraction; not of "
          "simulations",
          {.when = When::if_any});
        f.part("metrics", metrics_fields(), was_measured);
        f.part("memory", memory_fields());
        f.part("host_memory", host_memory_fields(), [](const Trial& t) { return t.host_memory.reserved > 0; });
        f.part("comm", comm_fields(), was_measured);
        f("caveats", &Trial::caveats, "",
          "sentences to read before any number, the most serious first; the printed table begins with them",
          {.when = When::if_any});
        f.spread(&Trial::causes, stall_fields());
        f(
            "rated", [](const Trial& t) { return t.causes ? std::optional(is_rated(t)) : std::nullopt; }, "",
            "whether the numbers describe what was asked for: false if the machine could not keep up with what it "
            "emulates");
        f("not_rated_because",
          [](const Trial& t) { return t.causes ? account::why_not_rated(t.fidelity) : std::string(); }, "",
          "why the run is not rated; there are no causes then", {.when = When::if_any});
        f.spread(&Trial::causes, cause_fields(), is_rated);
        f.then([](const JsonPart&, Trial& t) {
          if (!t.metrics) t.causes.reset();  // a damaged file
          if (t.causes) t.causes->step_ms = t.metrics->step_ms.median;
        });
      });
  return kAll;
}

template <>
const Fields<Trial>& fields<Trial>() {
  static const auto kAll =
      declare<Trial>("Trial", trial_fields().facts().meaning, "runs/trial.h", [](Fields<Trial>& f) {
        f.spread(kItself, trial_fields());
        f("seconds", &Trial::seconds, "s", "time from the first preparation to the last number",
          {.when = When::if_any});
        // Only written: a whole result has them elsewhere, and trial_from_json() knows where.
        f.spread(
            [](const Trial& t) -> const auto& { return t.metrics; }, step_times_fields());
      });
  return kAll;
}

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

}  // namespace fsdpbench::app
