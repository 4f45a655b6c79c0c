#include "runs/result_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "account/advice.h"
#include "account/cause_report.h"
#include "account/cause_table.h"
#include "account/compare.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "account/run_details.h"
#include "base/error.h"
#include "config/load.h"
#include "config/write.h"
#include "hardware/topology_matrix.h"
#include "record/json_part.h"
#include "runs/cause_fields.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "runs/run_table.h"
#include "runs/trial.h"

namespace fsdpbench::app {

namespace {

using nlohmann::json;

constexpr int kResultDecimals = 2;

std::string causes_text(const JsonPart& result) {
  const account::CauseReport report = *trial_from_json(result).causes;
  CauseTable how{"Why computation was not running (mean of all ranks in the typical step)", kResultDecimals, "", {}};
  if (!report.no_typical_because.empty()) {
    how.title = "Why computation was not running (mean of all recorded ranks in the measured steps)";
    how.no_typical = fmt::format("There is no typical step: {}.\n", report.no_typical_because);
  }
  for (const account::Counterfactual& knob : report.knobs) {
    if (knob.advised) how.knobs.push_back(account::knob_sentence(knob));
  }
  std::string text = cause_table(report, how);
  if (result.has("critical_path")) {
    account::PathReport path;
    JsonType<account::PathReport>::read(result.at("critical_path"), path);
    text += "\n" + path_table(path, kResultDecimals);
  }
  return text;
}

}  // namespace

std::string explain_result(const std::string& given) {
  const ResultFile result = read_result(given);
  if (const std::string why = why_unfinished(result); !why.empty()) {
    throw ConfigError(fmt::format("{}: {}, so there are no causes in it.", result.path, why));
  }
  if (const json why = result.content.value("not_rated_because", json()); why.is_string()) {
    throw ConfigError(fmt::format("{}: the run is not rated, so there are no causes in it: {}.", result.path,
                                  why.get<std::string>()));
  }
  if (!result.content.contains("causes")) {
    throw ConfigError(fmt::format("{}: there are no causes in it; no measured step was completed.", result.path));
  }
  try {
    return causes_text(JsonPart(result.content));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: is damaged: {}.", result.path, error.what()));
  }
}
namespace {

using nlohmann::json;

/// A finished run.
struct RunFile {
  const engine::Setup& setup;
  const Trial& trial;
  TrialDetails details;
};

bool has_steps(const RunFile& run) { return run.trial.metrics.has_value(); }

/// Phases by their names.
struct Phases {
  static json write(const std::vector<account::PhaseTimes>& phases) {
    json j;
    for (const account::PhaseTimes& p : phases) {
      j[std::string(schedule::to_string(p.phase))] = JsonType<account::PhaseTimes>::write(p);
    }
    return j;
  }
  static TypeFacts facts() { return {"map of object", JsonType<account::PhaseTimes>::facts().object}; }
};

/// A column of what a GPU was like, a value a step and null where it is not known; without any the column is absent.
template <class Value>
std::optional<json> column(const std::vector<account::GpuStep>& steps, Value value) {
  json list = json::array();
  bool known = false;
  for (const account::GpuStep& step : steps) {
    const auto found = value(step);
    list.push_back(found ? json(*found) : json());
    known = known || found;
  }
  return known ? std::optional(list) : std::nullopt;
}

std::optional<double> in_watts(const std::optional<std::int32_t>& mw) {
  return mw ? std::optional(*mw * 1e-3) : std::nullopt;
}

}  // namespace

template <>
const Fields<account::PhaseTimes>& fields<account::PhaseTimes>() {
  using P = account::PhaseTimes;
  static const auto kAll = declare<P>(
      "PhaseTimes", "One phase of a step. The phases add up to the step part by part.", "account/run_details.h",
      [](Fields<P>& f) {
        f("step_ms", &P::step_ms, "ms", "time of the phase");
        f("compute_ms", &P::compute_ms, "ms", "time in which computation ran");
        f("comm_ms", &P::comm_ms, "ms", "time in which a collective ran, exposed or hidden");
        f("overlap_ms", &P::overlap_ms, "ms", "time in which both ran");
        f("exposed_comm_ms", &P::exposed_comm_ms, "ms", "time in which a collective ran and nothing was computed");
        f("exposed_copy_ms", &P::exposed_copy_ms, "ms", "time in which only a copy ran");
        f("idle_ms", &P::idle_ms, "ms", "time in which nothing ran");
        f("host_wait_ms", &P::host_wait_ms, "ms",
          "time in which the host was blocked by limits or syncs; it is beside the others and no part of their sum");
      });
  return kAll;
}

template <>
const Fields<account::UnitTimes>& fields<account::UnitTimes>() {
  using U = account::UnitTimes;
  static const auto kAll = declare<U>("UnitTimes", "One unit in a step.", "account/run_details.h", [](Fields<U>& f) {
    f("unit", &U::unit, "", "label of the unit");
    f("compute_ms", &U::compute_ms, "ms", "computation of the unit");
    f("comm_ms", &U::comm_ms, "ms", "collectives of the unit");
    f("exposed_comm_ms", &U::exposed_comm_ms, "ms", "collectives of the unit while nothing was computed");
  });
  return kAll;
}

template <>
const Fields<account::CollectiveTimes>& fields<account::CollectiveTimes>() {
  using C = account::CollectiveTimes;
  static const auto kAll = declare<C>(
      "Collective", "A collective of the schedule: medians over ranks and steps.", "account/run_details.h",
      [](Fields<C>& f) {
        f("name", &C::name, "", "as traces name it");
        f("kind", &C::kind, "", "`all_gather`, `reduce_scatter`, …");
        f("unit", &C::unit, "", "unit that it is for");
        f("phase", &C::phase, "", "phase of the step");
        f("bytes", &C::message_bytes, "B", "message size, as nccl-tests defines it");
        f("group_size", &C::group_size, "", "number of ranks that take part");
        f("count", &C::count, "", "how often it was measured");
        f("time_ms", &C::time_ms, "ms", "from its turn on the communicator to its end");
        f("wait_ms", &C::wait_ms, "ms", "part of `time_ms` until the last peer had arrived");
        f("transfer_ms", &C::transfer_ms, "ms", "rest of `time_ms`");
        f("algbw_gb_per_s", &C::algbw_gb_s, "GB/s", "algorithm bandwidth of the transfer, as nccl-tests defines it");
        f("busbw_gb_per_s", &C::busbw_gb_s, "GB/s", "bus bandwidth, as nccl-tests defines it");
        f("link_efficiency", &C::link_efficiency, "",
          "bus bandwidth divided by that of the modelled link; absent for real links");
      });
  return kAll;
}

template <>
const Fields<DetailedCollective>& fields<DetailedCollective>() {
  using C = DetailedCollective;
  static const auto kAll = declare<C>("Collective", fields<account::CollectiveTimes>().facts().meaning,
                                      "account/run_details.h", [](Fields<C>& f) {
                                        f.spread(&C::times, fields<account::CollectiveTimes>());
                                        f("done_by", &C::done_by, "",
                                          "algorithm that carried it out; only in simulations, and where NCCL's "
                                          "profiler reports it ([gpu.md](gpu.md#nccls-profiler))");
                                      });
  return kAll;
}

template <>
const Fields<CauseInterval>& fields<CauseInterval>() {
  using C = CauseInterval;
  static const auto kAll = declare<C>("CauseInterval", "Time without computation in one step of median length.",
                                      "account/typical_step.h", [](Fields<C>& f) {
                                        f("rank", &C::rank, "", "rank that it belongs to");
                                        f("step", &C::step, "", "number of the step");
                                        f("begin_ms", &C::begin_ms, "ms", "begin, since the step began");
                                        f("end_ms", &C::end_ms, "ms", "end, since the step began");
                                        f("cause", &C::cause, "", "name of the cause, or `jitter`");
                                      });
  return kAll;
}

template <>
const Fields<MemoryTimeline>& fields<MemoryTimeline>() {
  using M = MemoryTimeline;
  static const auto kAll = declare<M>(
      "MemoryTimeline", "Live bytes over one step as its lanes ran.", "account/run_details.h", [](Fields<M>& f) {
        f("rank", &M::rank, "", "rank whose memory it is");
        f("step", &M::step, "", "number of the step");
        f("time_ms", &M::time_ms, "ms",
          "times since the step began; each value below holds from one of these times on");
        for (const MemoryCategory c : kMemoryCategories) {
          const std::size_t i = index_of(c);
          f(
              std::string(to_string(c)), [i](const M& m) { return m.live[i]; }, "B", "live bytes of this category");
        }
      });
  return kAll;
}

template <>
const Fields<MemoryAtPeak::Block>& fields<MemoryAtPeak::Block>() {
  using B = MemoryAtPeak::Block;
  static const auto kAll =
      declare<B>("LiveBlock", "A buffer that is alive.", "schedule/memory_walk.h", [](Fields<B>& f) {
        f("role", &B::role, "", "what the buffer holds");
        f("category", &B::category, "", "category that it is counted in");
        f("bytes", &B::bytes, "B", "its size in bytes");
        f("unit", &B::unit, "", "unit that it belongs to", {.when = When::if_any});
      });
  return kAll;
}

template <>
const Fields<MemoryAtPeak>& fields<MemoryAtPeak>() {
  using M = MemoryAtPeak;
  static const auto kAll =
      declare<M>("MemoryAtPeak", "What is alive at the peak that the schedule predicts.", "schedule/memory_walk.h",
                 [](Fields<M>& f) {
                   f("op", &M::op, "", "op before which the peak is reached; empty: before the first");
                   f("live_bytes", &M::live_bytes, "B", "all live bytes together");
                   f("live", &M::live, "", "live buffers, the largest first");
                 });
  return kAll;
}

template <>
const Fields<StepsByRank>& fields<StepsByRank>() {
  static const auto kAll = declare<StepsByRank>("", "", "account/run_view.h", [](Fields<StepsByRank>& f) {
    f("by_rank", &StepsByRank::by_rank, "ms", "for each rank, each of its measured steps");
    f("ranks", &StepsByRank::ranks, "", "numbers of these ranks; only where not all were recorded",
      {.when = When::if_any});
  });
  return kAll;
}

template <>
const Fields<ClockOfRank>& fields<ClockOfRank>() {
  using C = ClockOfRank;
  static const auto kAll = declare<C>("Clock", "How well a rank's clock is known: its times are on rank 0's.",
                                      "launch/clock_offset.h", [](Fields<C>& f) {
                                        f("rank", &C::rank, "", "number of the rank");
                                        f("offset_us", &C::offset_us, "us", "of its clock from rank 0's");
                                        f("residual_us", &C::residual_us, "us", "by which it may be wrong");
                                        f("drift_us_per_s", &C::drift_us_per_s, "us/s", "by which it runs faster");
                                      });
  return kAll;
}

template <>
const Fields<engine::SavedCheckpoint>& fields<engine::SavedCheckpoint>() {
  using C = engine::SavedCheckpoint;
  static const auto kAll = declare<C>("Checkpoint", "A checkpoint ([checkpoint.md](checkpoint.md)).",
                                      "engine/checkpoint_folder.h", [](Fields<C>& f) {
                                        f("folder", &C::folder, "", "where it is");
                                        f("steps", &C::steps, "", "that were done");
                                        f("bytes", &C::bytes, "B", "of all files");
                                      });
  return kAll;
}

template <>
const Fields<account::JitterSpread>& fields<account::JitterSpread>() {
  using J = account::JitterSpread;
  static const auto kAll = declare<J>(
      "JitterSpread", "How the steps of a simulation with jitter scatter.", "account/statistics.h", [](Fields<J>& f) {
        f("p50_ms", &J::p50_ms, "ms", "median step");
        f("p95_ms", &J::p95_ms, "ms", "95 of 100 steps are shorter");
        f("p99_ms", &J::p99_ms, "ms", "99 of 100 steps are shorter");
        f("without_jitter_ms", &J::without_jitter_ms, "ms", "step time without jitter");
        f("lost_to_jitter_pct", &J::lost_to_jitter_pct, "%", "share of the median step that jitter costs");
      });
  return kAll;
}

template <>
const Fields<clock::Bounds>& fields<clock::Bounds>() {
  static const auto kAll = declare<clock::Bounds>("Bounds", "Between which 95 of 100 such predictions should be.",
                                                  "clock/forecast.h", [](Fields<clock::Bounds>& f) {
                                                    f("low", &clock::Bounds::low, "", "lower end");
                                                    f("high", &clock::Bounds::high, "", "upper end");
                                                  });
  return kAll;
}

template <>
const Fields<PredictionInterval>& fields<PredictionInterval>() {
  using P = PredictionInterval;
  static const auto kAll = declare<P>(
      "Prediction", "How sure a simulation's step is ([simulate.md](simulate.md)).", "runs/world.h", [](Fields<P>& f) {
        const auto if_sure = [](auto value) {
          return [value](const P& p) { return p.step_ms ? std::optional(value(p)) : std::nullopt; };
        };
        f("from", &P::from, "", "source of the op times");
        f("no_interval_because",
          [](const P& p) {
            return std::string(
                p.step_ms ? "" : "op times follow from the rates that were given: no other times are as likely");
          },
          "", "why there is no interval; then the rest is absent", {.when = When::if_any});
        f("reach", if_sure([](const P& p) { return clock::least_sure(p.ops); }), "", "how sure the least sure op is");
        f("ops", if_sure([](const P& p) { return p.ops; }), "", "number of ops of a step, by how sure they are");
        f("interval_pct", if_sure([](const P&) { return 95; }), "%", "probability with which the interval should hold");
        f("step_ms", &P::step_ms, "ms", "the step time");
        f("exposed_comm_ms", &P::exposed_ms, "ms", "exposed communication");
        f("leaves_ranks_out", if_sure([](const P& p) { return p.leaves_ranks_out; }), "",
          "true if the interval leaves out what so many ranks change");
      });
  return kAll;
}

template <>
const Fields<GpuLimits>& fields<GpuLimits>() {
  using L = GpuLimits;
  static const auto kAll =
      declare<L>("GpuLimits", "What a GPU can do at most.", "hardware/gpu_health.h", [](Fields<L>& f) {
        f("sm_mhz", &L::sm_mhz, "MHz", "highest SM clock");
        f(
            "power_w", [](const L& l) { return in_watts(l.power_mw); }, "W", "power limit");
        f("pcie_width", &L::pcie_width, "", "number of PCIe lanes");
        f("pcie_generation", &L::pcie_generation, "", "generation of PCIe");
        f("ecc", &L::ecc, "", "whether ECC is on");
      });
  return kAll;
}

template <>
const Fields<GpuErrors>& fields<GpuErrors>() {
  using E = GpuErrors;
  static const auto kAll =
      declare<E>("GpuErrors", "By how much the driver's counters grew.", "hardware/gpu_health.h", [](Fields<E>& f) {
        f("ecc_corrected", &E::ecc_corrected, "", "memory errors that were corrected");
        f("ecc_uncorrected", &E::ecc_uncorrected, "", "memory errors that were not corrected");
        f("nvlink_replays", &E::nvlink_replays, "", "replays of all NVLink links together");
        f("nvlink_recoveries", &E::nvlink_recoveries, "", "recoveries of all NVLink links together");
        f("nvlink_crc", &E::nvlink_crc, "", "CRC errors of all NVLink links together");
      });
  return kAll;
}

template <>
const Fields<GpuOfRank::Xid>& fields<GpuOfRank::Xid>() {
  using X = GpuOfRank::Xid;
  static const auto kAll =
      declare<X>("Xid", "An error that the driver reported.", "hardware/gpu_health.h", [](Fields<X>& f) {
        f("code", &X::code, "", "NVIDIA's number of the error");
        f("step", &X::step, "", "step in which it arrived");
      });
  return kAll;
}

template <>
const Fields<account::Throttling>& fields<account::Throttling>() {
  using T = account::Throttling;
  static const auto kAll =
      declare<T>("Throttling", "Measured steps in which a GPU did not run as fast as it could.", "account/gpu_steps.h",
                 [](Fields<T>& f) {
                   f(
                       "why", [](const T& t) { return account::limits_text(t.why); }, "", "what held its clocks down");
                   f("steps", &T::steps, "", "which steps");
                   f("of_steps", &T::seen, "", "number of steps that have a sample");
                   f("sm_mhz", &T::sm_mhz, "MHz", "median clock in those steps");
                   f("other_sm_mhz", &T::other_sm_mhz, "MHz", "median clock in the other steps");
                   f("longer_pct", &T::longer_pct, "%", "by how much those steps were longer");
                 });
  return kAll;
}

namespace {

using GpuSteps = std::vector<account::GpuStep>;

const Fields<GpuSteps>& gpu_step_fields() {
  using S = account::GpuStep;
  static const auto kAll = declare<GpuSteps>(
      "GpuSteps", "What a GPU was like, by measured step; null where the driver did not tell.", "account/gpu_steps.h",
      [](Fields<GpuSteps>& f) {
        const auto each = [&](const char* name, auto value, const char* unit, const char* meaning) {
          f(
              name, [value](const GpuSteps& steps) { return column(steps, value); }, unit, meaning);
        };
        each(
            "samples", [](const S& s) { return std::optional(s.samples); }, "", "number of samples");
        each(
            "sm_mhz", [](const S& s) { return s.sm_mhz; }, "MHz", "median SM clock");
        each(
            "power_w", [](const S& s) { return in_watts(s.power_mw); }, "W", "median power");
        each(
            "temperature_c", [](const S& s) { return s.temperature_c; }, "C", "highest temperature");
        each(
            "pcie_width", [](const S& s) { return s.pcie_width; }, "", "smallest number of PCIe lanes");
        each(
            "pcie_generation", [](const S& s) { return s.pcie_generation; }, "", "lowest generation of PCIe");
        each(
            "held_down_by",
            [](const S& s) { return s.samples > 0 ? std::optional(account::limits_text(s.limits)) : std::nullopt; }, "",
            "what held its clocks down");
      });
  return kAll;
}

const Fields<GpuOfRank>& watched_gpu_fields() {
  using G = GpuOfRank;
  static const auto kAll = declare<G>("", "", "hardware/gpu_health.h", [](Fields<G>& f) {
    f(
        "limits", [](const G& g) { return g.health.limits; }, "", "largest values that the GPU allows");
    f(
        "errors", [](const G& g) { return g.health.errors; }, "", "errors that were counted during the run");
    f("xids", &G::xids, "", "errors that the driver reported");
    f("xids_left_out", [](const G& g) { return g.health.xids_left_out; }, "", "number of further errors",
      {.when = When::if_any});
    f.object("steps", &G::steps, gpu_step_fields(), "state of the GPU in each measured step");
    f("throttled", &G::throttled, "", "steps in which the GPU did not run as fast as it could", {.when = When::if_any});
  });
  return kAll;
}

}  // namespace

template <>
const Fields<GpuOfRank>& fields<GpuOfRank>() {
  using G = GpuOfRank;
  static const auto kAll =
      declare<G>("Gpu", "How a rank's GPU fared ([gpu.md](gpu.md#clocks-power-and-errors-of-the-gpus)).",
                 "hardware/gpu_health.h", [](Fields<G>& f) {
                   f("rank", &G::rank, "", "rank that it belongs to");
                   f("unknown_because", [](const G& g) { return g.health.unknown_because; }, "", "why nothing is known",
                     {.when = When::if_any});
                   f.spread([](const G& g) -> const G& { return g; }, watched_gpu_fields(),
                            [](const G& g) { return !g.health.samples.empty(); });
                 });
  return kAll;
}

namespace {

const Fields<RunFile>& world_more_fields() {
  static const auto kAll = declare<RunFile>("World", "", "", [](Fields<RunFile>& f) {
    f(
        "clock",
        [](const RunFile& r) -> std::optional<json> {
          if (r.details.clocks.empty()) return std::nullopt;
          return r.details.one_clock ? json("same host clock")
                                     : JsonType<std::vector<ClockOfRank>>::write(r.details.clocks);
        },
        "", "for each rank, how well its host's clock is known; absent if ranks are threads ([launch.md](launch.md))");
    f(
        "topology",
        [](const RunFile& r) -> std::optional<json> {
          if (r.setup.config.device.backend != config::BackendKind::cuda) return std::nullopt;
          json topology = topology_json();
          return topology.is_null() ? std::nullopt : std::optional(std::move(topology));
        },
        "", "what GPUs and network cards of rank 0's host share; only on GPUs ([doctor.md](doctor.md))");
  });
  return kAll;
}

const Fields<RunFile>& metrics_more_fields() {
  static const auto kAll = declare<RunFile>("Metrics", "", "", [](Fields<RunFile>& f) {
    f.operator()<Phases>(
        "phases", [](const RunFile& r) { return r.details.phases; }, "", "parts of the step by phase");
    f(
        "units", [](const RunFile& r) { return r.details.units; }, "", "parts of the step by unit");
  });
  return kAll;
}

const Fields<RunFile>& memory_more_fields() {
  static const auto kAll = declare<RunFile>("Memory", "", "", [](Fields<RunFile>& f) {
    f(
        "timeline", [](const RunFile& r) { return r.details.timeline; }, "", "live bytes over one step");
    f(
        "peak_at", [](const RunFile& r) { return r.details.peak_at; }, "", "what is alive at the peak");
    f(
        "process_peak_rss_bytes", [](const RunFile& r) { return r.details.process_peak_rss_bytes; }, "B",
        "largest resident set of the process, by the operating system; absent in simulations");
  });
  return kAll;
}

const Fields<RunFile>& step_fields() {
  static const auto kAll =
      declare<RunFile>("Steps", "Every measured step.", "account/run_view.h", [](Fields<RunFile>& f) {
        f(
            "slowest_rank_ms", [](const RunFile& r) { return r.trial.metrics->steps_ms; }, "ms",
            "each measured step, of its slowest rank");
        f.spread([](const RunFile& r) -> const StepsByRank& { return r.details.steps; }, fields<StepsByRank>());
      });
  return kAll;
}

const Fields<engine::Setup>& train_frame_fields() {
  using S = engine::Setup;
  static const auto kAll = declare<S>("Train", "The training.", "engine/run.h", [](Fields<S>& f) {
    f(
        "warmup", [](const S& s) { return s.config.train.warmup; }, "", "steps before the measured ones");
    f(
        "parameters", [](const S& s) { return s.plan.shapes.parameter_count(); }, "",
        "number of parameters of the model");
  });
  return kAll;
}

const Fields<RunFile>& train_fields() {
  static const auto kAll = declare<RunFile>("Train", "", "engine/run.h", [](Fields<RunFile>& f) {
    const auto measured = [](auto member) {
      return [member](const RunFile& r) { return r.trial.measurement.*member; };
    };
    f("steps_done", measured(&engine::Measurement::steps_done), "", "steps done, warm-up included");
    f("began_after_step", [](const RunFile& r) { return r.trial.measurement.began_at.steps; }, "",
      "optimizer steps done before this run; only if a training was resumed ([checkpoint.md](checkpoint.md))",
      {.when = When::if_any});
    f("loss", measured(&engine::Measurement::losses), "",
      "loss of each step, warm-up included; null where it is not finite; absent if computation is emulated",
      {.when = When::if_any});
    f("expert_rows", measured(&engine::Measurement::expert_rows), "",
      "rows that came to each expert in the measured steps, by block and expert: of all ranks' tokens, each as often "
      "as it visits one; absent without experts and where nothing is computed",
      {.when = When::if_any});
    f("expert_imbalance",
      [](const RunFile& r) {
        return account::expert_imbalance(r.trial.measurement.expert_rows, r.setup.config.mesh.expert);
      },
      "",
      "of these rows, those of the busiest of the `mesh.expert` ranks (if that is 1: of the busiest expert) over the "
      "mean, the mean over blocks: a value for `mesh.expert_imbalance` of a simulation",
      {.when = When::if_any});
    f("params_digest", measured(&engine::Measurement::parameters_digest), "",
      "a hash of all final parameters, which does not depend on the sharding; `no_digest_because` says why it is "
      "absent");
    f("no_digest_because",
      [](const RunFile& r) {
        return account::why_no_digest(r.setup.config, r.trial.measurement.parameters_not_finite);
      },
      "",
      "why there is no digest although something was computed: `train.params_digest = false` leaves the parameters "
      "where they "
      "are, some of them are not finite, or a GPU may add in any order",
      {.when = When::if_any});
  });
  return kAll;
}

struct RunFrame {
  const engine::Setup& setup;
  const World& world;
};

const Fields<RunFrame>& frame_fields() {
  static const auto kAll = declare<RunFrame>("Run", "", "", [](Fields<RunFrame>& f) {
    f(
        "config", [](const RunFrame& r) { return config::to_json(r.setup.config); }, "",
        "every key with its resolved value");
    f(
        "model", [](const RunFrame& r) { return model_text(r.setup.config); }, "",
        "what to call the model: the name of its preset, or what it is where the profile has sizes of its own");
    f(
        "config_changed",
        [](const RunFrame& r) { return config::changed_to_json(r.setup.config, config::presets_of(r.setup.config)); },
        "",
        "keys whose value differs from the preset's, or from the program's default where no preset sets them: `key`, "
        "`value`, `default`");
    f(
        "world", [](const RunFrame& r) { return r.world; }, "", "what it was measured with");
    f.object(
        "train", [](const RunFrame& r) -> const auto& { return r.setup; }, train_frame_fields(), "the training");
  });
  return kAll;
}

const Fields<RunFile>& run_fields() {
  using R = RunFile;
  static const auto kAll =
      declare<R>("Run", "result.json of `run` and `simulate`: every number, and the world it was measured in.",
                 "runs/trial.h", [](Fields<R>& f) {
                   f.spread([](const R& r) { return RunFrame{r.setup, r.trial.world}; }, frame_fields());
                   f.spread([](const R& r) -> const Trial& { return r.trial; }, trial_fields());
                   f(
                       "complete", [](const R& r) { return !r.trial.interrupted; }, "", "whether all steps were done");
                   f("diverged_because", [](const R& r) { return r.trial.diverged_because; }, "",
                     "why training diverged: a loss or a final parameter is NaN or infinite; the exit code is 8",
                     {.when = When::if_any});
                   f.part("world", world_more_fields());
                   f.part("train", train_fields());
                   f("checkpoints", [](const R& r) { return r.trial.measurement.checkpoints; }, "",
                     "checkpoints that were saved", {.when = When::if_any});
                   f.part("metrics", metrics_more_fields(), has_steps);
                   f(
                       "collectives",
                       [](const R& r) { return has_steps(r) ? std::optional(r.details.collectives) : std::nullopt; },
                       "", "each collective of the schedule");
                   f(
                       "exposed_intervals", [](const R& r) { return r.details.exposed_intervals; }, "",
                       "when each cause held computation up, in one step of median length");
                   f(
                       "critical_path", [](const R& r) { return r.details.path; }, "",
                       "the chain of work that decided how long steps were; absent where `causes` is");
                   f(
                       "simulation", [](const R& r) { return has_steps(r) ? r.trial.spread : std::nullopt; }, "",
                       "how steps scatter; only in simulations with jitter");
                   f(
                       "prediction", [](const R& r) { return has_steps(r) ? r.trial.sureness : std::nullopt; }, "",
                       "how sure the step time is; only in simulations");
                   f.part("steps", step_fields(), has_steps);
                   f("gpus", [](const R& r) { return r.details.gpus; }, "", "how each GPU fared; only of ranks on GPUs",
                     {.when = When::if_any});
                   f.part("memory", memory_more_fields(), has_steps);
                 });
  return kAll;
}

}  // namespace

json result_frame(const engine::Setup& setup, const World& world) { return frame_fields().write({setup, world}); }

json result_json(const engine::Setup& setup, const Trial& trial) {
  return run_fields().write({setup, trial, trial_details(setup, trial)});
}

const ObjectFacts& run_file_facts() { return run_fields().facts(); }

}  // namespace fsdpbench::app
