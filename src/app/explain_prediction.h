#pragma once

#include <optional>
#include <string>
#include <vector>

#include "account/step_bound.h"
#include "clock/emulated_times.h"
#include "engine/setup.h"
#include "record/json_fields.h"
#include "schedule/wasted_gathers.h"

namespace fsdpbench::app {

/// Rates that the user gives; those absent are what the configuration emulates.
struct GivenRates {
  std::optional<double> tflops;           ///< 1e12 FLOP/s a rank
  std::optional<double> link_gb_per_s;    ///< 1e9 bytes/s a rank
  std::optional<double> link_latency_us;  ///< a hop
};

/// The step of a configuration that nobody has run: by the steady schedule with modelled op times.
struct Prediction {
  std::optional<account::StepPrediction> step;
  clock::Rates rates;
  std::string why_none;                                ///< a sentence, where there is no step
  std::vector<schedule::WastedGather> wasted_gathers;  ///< of the steady step; needs no rates
};

/// Throws ConfigError if a given rate is none that its key of [emulate] may have.
Prediction predict(const engine::Setup& setup, const GivenRates& given);

/// A few lines: the step and what it is made of, or why there is none.
std::string prediction_text(const Prediction& prediction);

template <>
Fields<Prediction> declared();

}  // namespace fsdpbench::app
