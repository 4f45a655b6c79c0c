#include "runs/result_json.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "account/advice.h"
#include "account/cause_report.h"
#include "account/cause_table.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "account/divergence.h"
#include "account/run_details.h"
#include "base/error.h"
#include "config/load.h"
#include "config/write.h"
#include "record/json_part.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "runs/run_table.h"
#include "runs/trial.h"

namespace fsdpbench::app {

namespace {

using nlohmann::json;

std::string causes_text(const JsonPart& result) {
  const account::CauseReport report = *trial_from_json(result).causes;
  CauseTable how{"Why computation was not running (mean of all ranks in the typical step)", "", {}};
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
    text += "\n" + path_table(path);
  }
  return text;
}

/// Parts of a result that it has from its beginning.
struct RunFrame {
  const engine::Setup* setup;
  const World* world;
};

/// A finished run.
struct RunFile {
  RunFrame frame;
  const Trial* trial;
  TrialDetails details;
};

const engine::Setup& run_setup(const RunFile& run) { return *run.frame.setup; }
const engine::Measurement& measured(const RunFile& run) { return run.trial->measurement; }
bool has_steps(const RunFile& run) { return run.trial->metrics.has_value(); }

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

double in_watts(std::int32_t mw) { return mw * 1e-3; }

/// A column of what a GPU was like, a value a step and null where it is not known; without any the column is absent.
template <class Value>
auto column(Value value) {
  return [=](const std::vector<account::GpuStep>& steps) {
    json list = json::array();
    bool known = false;
    for (const account::GpuStep& step : steps) {
      const std::optional found = std::invoke(value, step);
      list.push_back(found ? json(*found) : json());
      known = known || found;
    }
    return known ? std::optional(list) : std::nullopt;
  };
}

std::optional<std::string> held_down_by(const account::GpuStep& step) {
  return step.samples > 0 ? std::optional(account::limits_text(step.limits)) : std::nullopt;
}

bool is_sure(const PredictionInterval& prediction) { return prediction.step_ms.has_value(); }
bool was_watched(const GpuOfRank& gpu) { return !gpu.health.samples.empty(); }

json clocks_json(const TrialDetails& details) {
  return details.one_clock ? json("same host clock") : JsonType<std::vector<ClockOfRank>>::write(details.clocks);
}
std::string why_no_digest(const RunFile& run) {
  return account::why_no_digest(run_setup(run).config, measured(run).parameters_not_finite);
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

// clang-format off
template <>
Fields<account::PhaseTimes> declared() {
  using P = account::PhaseTimes;
  return {"PhaseTimes", "One phase of a step. The phases add up to the step part by part.", "account/run_details.h", {
    {"step_ms", &P::step_ms, "ms", "time of the phase"},
    {"compute_ms", &P::compute_ms, "ms", "time in which computation ran"},
    {"comm_ms", &P::comm_ms, "ms", "time in which a collective ran, exposed or hidden"},
    {"overlap_ms", &P::overlap_ms, "ms", "time in which both ran"},
    {"exposed_comm_ms", &P::exposed_comm_ms, "ms", "time in which a collective ran and nothing was computed"},
    {"exposed_copy_ms", &P::exposed_copy_ms, "ms", "time in which only a copy ran"},
    {"idle_ms", &P::idle_ms, "ms", "time in which nothing ran"},
    {"host_wait_ms", &P::host_wait_ms, "ms", "time in which the host was blocked by limits or syncs; it is beside the others and no part of their sum"},
  }};
}

template <>
Fields<account::UnitTimes> declared() {
  using U = account::UnitTimes;
  return {"UnitTimes", "One unit in a step.", "account/run_details.h", {
    {"unit", &U::unit, "", "label of the unit"},
    {"compute_ms", &U::compute_ms, "ms", "computation of the unit"},
    {"comm_ms", &U::comm_ms, "ms", "collectives of the unit"},
    {"exposed_comm_ms", &U::exposed_comm_ms, "ms", "collectives of the unit while nothing was computed"},
  }};
}

template <>
Fields<account::CollectiveTimes> declared() {
  using C = account::CollectiveTimes;
  return {"Collective", "A collective of the schedule: medians over ranks and steps.", "account/run_details.h", {
    {"name", &C::name, "", "as traces name it"},
    {"kind", &C::kind, "", "`all_gather`, `reduce_scatter`, …"},
    {"unit", &C::unit, "", "unit that it is for"},
    {"phase", &C::phase, "", "phase of the step"},
    {"bytes", &C::message_bytes, "B", "message size, as nccl-tests defines it"},
    {"group_size", &C::group_size, "", "number of ranks that take part"},
    {"count", &C::count, "", "how often it was measured"},
    {"time_ms", &C::time_ms, "ms", "from its turn on the communicator to its end"},
    {"wait_ms", &C::wait_ms, "ms", "part of `time_ms` until the last peer had arrived"},
    {"transfer_ms", &C::transfer_ms, "ms", "rest of `time_ms`"},
    {"algbw_gb_per_s", &C::algbw_gb_s, "GB/s", "algorithm bandwidth of the transfer, as nccl-tests defines it"},
    {"busbw_gb_per_s", &C::busbw_gb_s, "GB/s", "bus bandwidth, as nccl-tests defines it"},
    {"link_efficiency", &C::link_efficiency, "", "bus bandwidth divided by that of the modelled link; absent for real links"},
  }};
}

template <>
Fields<DetailedCollective> declared() {
  using C = DetailedCollective;
  return {"Collective", fields<account::CollectiveTimes>().facts().meaning, "account/run_details.h", {
    spread(&C::times),
    {"done_by", &C::done_by, "", "algorithm that carried it out; only in simulations"},
  }};
}

template <>
Fields<CauseInterval> declared() {
  using C = CauseInterval;
  return {"CauseInterval", "Time without computation in one step of median length.", "account/typical_step.h", {
    {"rank", &C::rank, "", "rank that it belongs to"},
    {"step", &C::step, "", "number of the step"},
    {"begin_ms", &C::begin_ms, "ms", "begin, since the step began"},
    {"end_ms", &C::end_ms, "ms", "end, since the step began"},
    {"cause", &C::cause, "", "name of the cause, or `jitter`"},
  }};
}

template <>
Fields<MemoryTimeline> declared() {
  using M = MemoryTimeline;
  return {"MemoryTimeline", "Live bytes over one step as its lanes ran.", "account/run_details.h", {
    {"rank", &M::rank, "", "rank whose memory it is"},
    {"step", &M::step, "", "number of the step"},
    {"time_ms", &M::time_ms, "ms", "times since the step began; each value below holds from one of these times on"},
    by_category<M>(&M::live, "live bytes of this category"),
  }};
}

template <>
Fields<MemoryAtPeak::Block> declared() {
  using B = MemoryAtPeak::Block;
  return {"LiveBlock", "A buffer that is alive.", "schedule/memory_walk.h", {
    {"role", &B::role, "", "what the buffer holds"},
    {"category", &B::category, "", "category that it is counted in"},
    {"bytes", &B::bytes, "B", "its size in bytes"},
    {"unit", &B::unit, "", "unit that it belongs to", if_any},
  }};
}

template <>
Fields<MemoryAtPeak> declared() {
  using M = MemoryAtPeak;
  return {"MemoryAtPeak", "Buffers alive at the peak that the schedule predicts.", "schedule/memory_walk.h", {
    {"op", &M::op, "", "op before which the peak is reached; empty: before the first"},
    {"live_bytes", &M::live_bytes, "B", "all live bytes together"},
    {"live", &M::live, "", "live buffers, the largest first"},
  }};
}

template <>
Fields<StepsByRank> declared() {
  return {"", "", "account/run_view.h", {
    {"by_rank", &StepsByRank::by_rank, "ms", "for each rank, each of its measured steps"},
    {"ranks", &StepsByRank::ranks, "", "numbers of these ranks; only where not all were recorded", if_any},
  }};
}

template <>
Fields<ClockOfRank> declared() {
  using C = ClockOfRank;
  return {"Clock", "Accuracy of a rank's clock: its times are on rank 0's.", "launch/clock_offset.h", {
    {"rank", &C::rank, "", "number of the rank"},
    {"offset_us", &C::offset_us, "us", "of its clock from rank 0's"},
    {"residual_us", &C::residual_us, "us", "by which it may be wrong"},
    {"drift_us_per_s", &C::drift_us_per_s, "us/s", "by which it runs faster"},
  }};
}

template <>
Fields<engine::SavedCheckpoint> declared() {
  using C = engine::SavedCheckpoint;
  return {"Checkpoint", "A checkpoint ([checkpoint.md](checkpoint.md)).", "engine/checkpoint.h", {
    {"folder", &C::folder, "", "where it is"},
    {"steps", &C::steps, "", "that were done"},
    {"bytes", &C::bytes, "B", "of all files"},
    {"ms", &C::ms, "ms", "that the training stood still for it"},
  }};
}

template <>
Fields<account::JitterSpread> declared() {
  using J = account::JitterSpread;
  return {"JitterSpread", "Scatter of the steps of a simulation with jitter.", "account/statistics.h", {
    {"p50_ms", &J::p50_ms, "ms", "median step"},
    {"p95_ms", &J::p95_ms, "ms", "95 of 100 steps are shorter"},
    {"p99_ms", &J::p99_ms, "ms", "99 of 100 steps are shorter"},
    {"without_jitter_ms", &J::without_jitter_ms, "ms", "step time without jitter"},
    {"lost_to_jitter_pct", &J::lost_to_jitter_pct, "%", "share of the median step that jitter costs"},
  }};
}

template <>
Fields<clock::Bounds> declared() {
  return {"Bounds", "Interval that has 95 of 100 such predictions.", "clock/forecast.h", {
    {"low", &clock::Bounds::low, "", "lower end"},
    {"high", &clock::Bounds::high, "", "upper end"},
  }};
}

template <>
Fields<PredictionInterval> declared() {
  using P = PredictionInterval;
  return {"Prediction", "Certainty of a simulation's step ([simulate.md](simulate.md)).", "runs/world.h", {
    {"from", &P::from, "", "source of the op times"},
    {"no_interval_because", [](const P&) { return "op times follow from the rates that were given: no other times are as likely"; }, "", "why there is no interval; then the rest is absent", when(std::not_fn(is_sure))},
    {"reach", via(&P::ops, clock::least_sure), "", "how sure the least sure op is", when(is_sure)},
    {"ops", &P::ops, "", "number of ops of a step, by how sure they are", when(is_sure)},
    {"interval_pct", [](const P&) { return 95; }, "%", "probability with which the interval should hold", when(is_sure)},
    {"step_ms", &P::step_ms, "ms", "the step time"},
    {"exposed_comm_ms", &P::exposed_ms, "ms", "exposed communication"},
    {"leaves_ranks_out", &P::leaves_ranks_out, "", "true if the interval leaves out what so many ranks change", when(is_sure)},
  }};
}

template <>
Fields<GpuLimits> declared() {
  using L = GpuLimits;
  return {"GpuLimits", "Limits of a GPU.", "hardware/gpu_health.h", {
    {"sm_mhz", &L::sm_mhz, "MHz", "highest SM clock"},
    {"power_w", via(&L::power_mw, in_watts), "W", "power limit"},
    {"pcie_width", &L::pcie_width, "", "number of PCIe lanes"},
    {"pcie_generation", &L::pcie_generation, "", "generation of PCIe"},
    {"ecc", &L::ecc, "", "whether ECC is on"},
  }};
}

template <>
Fields<GpuErrors> declared() {
  using E = GpuErrors;
  return {"GpuErrors", "Growth of the driver's counters.", "hardware/gpu_health.h", {
    {"ecc_corrected", &E::ecc_corrected, "", "memory errors that were corrected"},
    {"ecc_uncorrected", &E::ecc_uncorrected, "", "memory errors that were not corrected"},
    {"nvlink_replays", &E::nvlink_replays, "", "replays of all NVLink links together"},
    {"nvlink_recoveries", &E::nvlink_recoveries, "", "recoveries of all NVLink links together"},
    {"nvlink_crc", &E::nvlink_crc, "", "CRC errors of all NVLink links together"},
  }};
}

template <>
Fields<GpuOfRank::Xid> declared() {
  using X = GpuOfRank::Xid;
  return {"Xid", "An error that the driver reported.", "hardware/gpu_health.h", {
    {"code", &X::code, "", "NVIDIA's number of the error"},
    {"step", &X::step, "", "step in which it arrived"},
  }};
}

template <>
Fields<account::Throttling> declared() {
  using T = account::Throttling;
  return {"Throttling", "Measured steps in which a GPU did not run as fast as it could.", "account/gpu_steps.h", {
    {"why", via(&T::why, account::limits_text), "", "what held its clocks down"},
    {"steps", &T::steps, "", "which steps"},
    {"of_steps", &T::seen, "", "number of steps that have a sample"},
    {"sm_mhz", &T::sm_mhz, "MHz", "median clock in those steps"},
    {"other_sm_mhz", &T::other_sm_mhz, "MHz", "median clock in the other steps"},
    {"longer_pct", &T::longer_pct, "%", "by how much those steps were longer"},
  }};
}

namespace {

const Fields<std::vector<account::GpuStep>>& gpu_step_fields() {
  using S = account::GpuStep;
  static const Fields<std::vector<S>> kAll{"GpuSteps", "State of a GPU in each measured step; null where the driver did not tell.", "account/gpu_steps.h", {
    {"samples", column(&S::samples), "", "number of samples"},
    {"sm_mhz", column(&S::sm_mhz), "MHz", "median SM clock"},
    {"power_w", column(via(&S::power_mw, in_watts)), "W", "median power"},
    {"temperature_c", column(&S::temperature_c), "C", "highest temperature"},
    {"pcie_width", column(&S::pcie_width), "", "smallest number of PCIe lanes"},
    {"pcie_generation", column(&S::pcie_generation), "", "lowest generation of PCIe"},
    {"held_down_by", column(held_down_by), "", "what held its clocks down"},
  }};
  return kAll;
}

}  // namespace

template <>
Fields<GpuOfRank> declared() {
  using G = GpuOfRank;
  return {"Gpu", "State of a rank's GPU during the run ([gpu.md](gpu.md#clocks-power-and-errors-of-the-gpus)).", "hardware/gpu_health.h", {
    {"rank", &G::rank, "", "rank that it belongs to"},
    {"unknown_because", via(&G::health, &GpuHealth::unknown_because), "", "why nothing is known", if_any},
    {"limits", via(&G::health, &GpuHealth::limits), "", "largest values that the GPU allows", when(was_watched)},
    {"errors", via(&G::health, &GpuHealth::errors), "", "errors that were counted during the run", when(was_watched)},
    {"xids", &G::xids, "", "errors that the driver reported", when(was_watched)},
    {"xids_left_out", via(&G::health, &GpuHealth::xids_left_out), "", "number of further errors", if_any},
    {"steps", as<ObjectOf<gpu_step_fields>>(&G::steps), "", "state of the GPU in each measured step", when(was_watched)},
    {"throttled", &G::throttled, "", "steps in which the GPU did not run as fast as it could", if_any},
  }};
}

namespace {

const Fields<RunFrame>& frame_fields() {
  using F = RunFrame;
  using S = engine::Setup;
  static const Fields<F> kAll{"Run", "", "", {
    {"config", via(&F::setup, &S::config, [](const auto& c) { return config::to_json(c); }), "", "every key with its resolved value"},
    {"model", via(&F::setup, &S::config, model_text), "", "what to call the model: the name of its preset, or what it is where the profile has sizes of its own"},
    {"config_changed", via(&F::setup, &S::config, [](const auto& c) { return config::changed_to_json(c, config::presets_of(c)); }), "", "keys whose value differs from the preset's, or from the program's default where no preset sets them: `key`, `value`, `default`"},
    {"world", &F::world, "", "what it was measured with"},
    {"train", {"Train", "The training.", "engine/run.h", {
      {"warmup", via(&F::setup, &S::config, &config::RunConfig::train, &config::Train::warmup), "", "steps before the measured ones"},
      {"parameters", via(&F::setup, &S::plan, &plan::Plan::shapes, &plan::ModelShapes::parameter_count), "", "number of parameters of the model"},
    }}, "the training"},
  }};
  return kAll;
}

const Fields<RunFile>& run_fields() {
  using R = RunFile;
  using D = TrialDetails;
  using M = engine::Measurement;
  static const Fields<R> kAll{"Run", "result.json of `run` and `simulate`: every number, and the world it was measured in.", "runs/trial.h", {
    spread(&R::frame, frame_fields()),
    spread(&R::trial, trial_fields()),
    {"complete", via(&R::trial, &Trial::interrupted, std::logical_not<>()), "", "whether all steps were done"},
    {"diverged_because", via(&R::trial, &Trial::diverged_because), "", "why training diverged: a loss or a final parameter is NaN or infinite; the exit code is 8", if_any},
    {"world", {"World", "", "", {
      {"clock", via(&R::details, clocks_json), "", "for each rank, how well its host's clock is known; absent if ranks are threads ([launch.md](launch.md))", when([](const R& r) { return !r.details.clocks.empty(); })},
    }}},
    {"train", {"Train", "", "engine/run.h", {
      {"steps_done", via(measured, &M::steps_done), "", "steps done, warm-up included"},
      {"began_after_step", [](const R& r) { return measured(r).began_at.steps; }, "", "optimizer steps done before this run; only if a training was resumed ([checkpoint.md](checkpoint.md))", if_any},
      {"loss", via(measured, &M::losses), "", "loss of each step, warm-up included; null where it is not finite; absent if computation is emulated", if_any},
      {"params_digest", via(measured, &M::parameters_digest), "", "a hash of all final parameters, which does not depend on the sharding; `no_digest_because` says why it is absent"},
      {"no_digest_because", why_no_digest, "", "why there is no digest although something was computed: `train.params_digest = false` leaves the parameters where they are, some of them are not finite, or a GPU may add in any order", if_any},
    }}},
    {"checkpoints", via(measured, &M::checkpoints), "", "checkpoints that were saved", if_any},
    {"metrics", {"Metrics", "", "", {
      {"phases", as<Phases>(&R::details, &D::phases), "", "parts of the step by phase"},
      {"units", via(&R::details, &D::units), "", "parts of the step by unit"},
    }}, when(has_steps)},
    {"collectives", via(&R::details, &D::collectives), "", "each collective of the schedule", when(has_steps)},
    {"exposed_intervals", via(&R::details, &D::exposed_intervals), "", "when each cause held computation up, in one step of median length"},
    {"critical_path", via(&R::details, &D::path), "", "the chain of work that decided how long steps were; absent where `causes` is"},
    {"simulation", via(&R::trial, &Trial::spread), "", "how steps scatter; only in simulations with jitter", when(has_steps)},
    {"prediction", via(&R::trial, &Trial::sureness), "", "how sure the step time is; only in simulations", when(has_steps)},
    {"steps", {"Steps", "Every measured step.", "account/run_view.h", {
      {"slowest_rank_ms", [](const R& r) { return r.trial->metrics->steps_ms; }, "ms", "each measured step, of its slowest rank"},
      spread(via(&R::details, &D::steps)),
    }}, when(has_steps)},
    {"gpus", via(&R::details, &D::gpus), "", "how each GPU fared; only of ranks on GPUs", if_any},
    {"memory", {"Memory", "", "", {
      {"timeline", via(&R::details, &D::timeline), "", "live bytes over one step"},
      {"peak_at", via(&R::details, &D::peak_at), "", "what is alive at the peak"},
      {"process_peak_rss_bytes", via(&R::details, &D::process_peak_rss_bytes), "B", "largest resident set of the process, by the operating system; absent in simulations"},
    }}, when(has_steps)},
  }};
  return kAll;
}
// clang-format on

}  // namespace

json result_frame(const engine::Setup& setup, const World& world) { return frame_fields().write({&setup, &world}); }

json result_json(const engine::Setup& setup, const Trial& trial) {
  return run_fields().write({{&setup, &trial.world}, &trial, trial_details(setup, trial)});
}

const ObjectFacts& run_file_facts() { return run_fields().facts(); }

}  // namespace fsdpbench::app
