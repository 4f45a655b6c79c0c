#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "clock/emulated_times.h"
#include "engine/setup.h"
#include "record/json_fields.h"
#include "tune/step_answer.h"

namespace fsdpbench::app {

/// Rates that the user gives; those absent are what the configuration emulates.
struct GivenRates {
  std::optional<double> tflops;           ///< 1e12 FLOP/s a rank
  std::optional<double> link_gb_per_s;    ///< 1e9 bytes/s a rank
  std::optional<double> link_latency_us;  ///< a hop
};

/// The step of a configuration that nobody has run: by the steady schedule with modelled op times.
struct Prediction {
  std::optional<StepAnswer> step;
  std::string cluster;  ///< whose measured rates the ops have; empty: they have `rates`
  clock::Rates rates;
  std::string why_none;  ///< a sentence, where there is no step
};
template <>
Fields<Prediction> declared<Prediction>();

/// On simulate.cluster, if the configuration names one, as `simulate` has it. Throws ConfigError if a given rate is
/// none that its key of [emulate] may have, or a cluster has its own.
Prediction predict(const engine::Setup& setup, const GivenRates& given);

/// A few lines: the step and what it is made of, or why there is none.
std::string prediction_text(const Prediction& prediction);

/// Plan, memory, communication, predicted step and the order of collectives, for people: a terminal wide and about a
/// page long, whatever the model's depth.
std::string explain_text(const engine::Setup& setup, const Prediction& prediction);

/// Summary of an explanation, on one screen.
std::string explain_summary(const engine::Setup& setup, const Prediction& prediction);

inline constexpr const char* kWholeSchedule = "all";
/// The steady schedule op by op, or what of it belongs to `which`: a unit's label, or a layer's name (with the gathers
/// and reductions of its unit). Throws ConfigError if there is no such unit or layer.
std::string schedule_text(const engine::Setup& setup, const std::string& which = kWholeSchedule);

/// All for programs: {"schema_version", "config", "plan", "memory", "communication", "prediction", "schedule"}.
nlohmann::json explain_json(const engine::Setup& setup, const Prediction& prediction);

const ObjectFacts& explain_file_facts();
inline constexpr int kExplainSchemaVersion = 1;

}  // namespace fsdpbench::app
