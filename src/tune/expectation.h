#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clock/forecast.h"
#include "runs/cell.h"
#include "runs/trial.h"

/// What a training should reach on a machine, and what would explain that somebody's own job does not.
namespace fsdpbench::app {

/// What a user measured of their own job.
struct MeasuredRate {
  enum class Unit : std::uint8_t { tokens_per_s, step_ms, mfu_pct };
  Unit unit = Unit::tokens_per_s;  ///< tokens of one rank a second
  double value = 0;                ///< > 0
};

/// "6150" or "6150 tok/s", tokens of one rank a second; "2.31 s" or "2310 ms", a step; "41 %", MFU. Throws ConfigError
/// that says what is valid.
MeasuredRate read_measured_rate(std::string_view text);

/// A value and where it lies 95 times of 100.
struct Expected {
  double value = 0;
  std::optional<clock::Bounds> bounds;  ///< absent where rates were given, and so are not in doubt
};

/// One thing that, alone, would make the step as long as it was measured.
struct PossibleReason {
  enum class What : std::uint8_t {
    computation,  ///< modules compute at this part of their speed
    links,        ///< bytes flow at this part of their rate
    host,         ///< the host takes so many ms to issue the ops of a step, beside what it takes anyway
    outside,      ///< so many ms a step pass in which no op of the schedule runs
  };
  What what = What::computation;
  /// Of computation and links a part of 1, of the others ms a step. Bounds: by those of the expected step.
  Expected amount;
  std::string seen_as;  ///< what a measurement would show then, and what it shows else
  std::string measure;  ///< how to measure that
};

/// The published training that is most like this one.
struct NearestPublished {
  std::string id, title, source;     ///< of profiles/published/training.csv
  double published = 0;              ///< tokens of one rank a second
  double predicted = 0;              ///< the same of that row by the same model, with the typical efficiency
  std::vector<std::string> differs;  ///< in what it is not this training: "128 ranks", "mpt-7b"
};

struct Expectation {
  Expected step_ms, tokens_per_s;  ///< tokens of one rank
  std::optional<Expected> mfu_pct;
  Expected exposed_comm_ms;
  std::int64_t peak_bytes = 0;                ///< reserved by PyTorch's allocator; without a GPU, exact blocks
  bool fits = true;                           ///< in its GPU
  std::optional<std::int64_t> device_bytes;   ///< what its GPU has
  std::optional<NearestPublished> published;  ///< absent where no cluster is named, and so no GPU
  std::optional<double> measured_step_ms;
  std::vector<PossibleReason> reasons;  ///< empty if nothing was measured, or the same as expected

  /// Whether the measured step lies in the interval; without one, whether it is within 1 % of what is expected.
  bool as_expected() const;
};

/// `trial`: of `cell`, a simulation of a machine that it names, all of whose steps are there. Throws ConfigError for an
/// MFU where no peak is known.
Expectation expect(const Cell& cell, const Trial& trial, const std::optional<MeasuredRate>& measured);

std::string expectation_text(const Cell& cell, const Expectation& expectation);
/// The content of expect.json (docs/expect.md).
nlohmann::json expectation_json(const Cell& cell, const Expectation& expectation);

}  // namespace fsdpbench::app
