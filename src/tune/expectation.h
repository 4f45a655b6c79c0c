#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runs/assumptions.h"
#include "runs/cell.h"
#include "runs/trial.h"
#include "tune/step_answer.h"

/// Expectation for a training on a machine, and what would explain that somebody's own job misses it.
namespace fsdpbench::app {

/// Rate that a user measured of their own job.
struct MeasuredRate {
  enum class Unit : std::uint8_t { tokens_per_s, step_ms, mfu_pct };
  Unit unit = Unit::tokens_per_s;  ///< tokens of one rank a second
  double value = 0;                ///< > 0
};

/// "6150" or "6150 tok/s", tokens of one rank a second; "2.31 s" or "2310 ms", a step; "41 %", MFU. Throws ConfigError
/// that says what is valid.
MeasuredRate read_measured_rate(std::string_view text);

/// One thing that, alone, would make the step as long as it was measured.
struct PossibleReason {
  enum class What : std::uint8_t {
    computation,  ///< modules compute at this part of their speed
    links,        ///< bytes flow at this part of their rate
    host,         ///< the host takes so many ms to issue the ops of a step, beside what it takes anyway
    outside,      ///< so many ms a step pass in which no op of the schedule runs
  };
  What what = What::computation;
  /// For computation and links a part of 1, for the others ms per step. Bounds: by those of the expected step.
  Estimate amount;
  std::string seen_as;  ///< what a measurement would show then, and what it shows else
  std::string measure;  ///< how to measure that
};

/// Reason why the interval of a step is wide: one thing that the answer takes for granted, and how far the step moves
/// with it.
struct Hinge {
  std::string what;
  double low_ms = 0, high_ms = 0;  ///< the step, where all else is as expected
  std::string say;                 ///< how to say what is the case
};

/// The one thing that several measured trainings have in common.
struct SharedReason {
  std::string what;                   ///< with its amount
  std::vector<double> over_measured;  ///< by training: the step that follows from it over the measured one
  double typical() const;             ///< the median of how far these are from 1
};

/// The published training that is most like this one.
struct NearestPublished {
  std::string id, title, source;     ///< of profiles/published/training.csv
  double published = 0;              ///< tokens of one rank a second
  double predicted = 0;              ///< the same of that row by the same model, with the typical efficiency
  std::vector<std::string> differs;  ///< in what it is not this training: "128 ranks", "mpt-7b"
};

/// Step that a user measured, beside what is expected.
struct MeasuredStep {
  double step_ms = 0, tokens_per_s_rank = 0;
  bool as_expected = false;  ///< in the interval; without one, within 1 % of what is expected
};

/// The content of expect.json (docs/expect.md).
struct Expectation : StepAnswer {
  std::string memory_basis;  ///< what the memory counts
  std::string headline;      ///< what is expected of it
  nlohmann::json config;
  std::vector<Assumption> assumptions;
  bool retries = false;  ///< it fits only where the allocator returns memory to the driver in the middle of a step
  bool fits = true;      ///< in its GPU; memory is what PyTorch's allocator reserves, else blocks
  std::optional<std::int64_t> device_bytes;   ///< what its GPU has
  std::vector<Hinge> hangs_on;                ///< the three that move it most; empty: no interval
  std::optional<NearestPublished> published;  ///< absent where no cluster is named, and so no GPU
  std::optional<MeasuredStep> measured;
  std::vector<PossibleReason> reasons;  ///< empty if nothing was measured, or the same as expected
};
template <>
Fields<Expectation> declared<Expectation>();

/// `trial`: of `cell`, a simulation of a machine that it names, all of whose steps are there. Throws ConfigError for an
/// MFU where no peak is known.
Expectation expect(const Cell& cell, const Trial& trial, const std::optional<MeasuredRate>& measured,
                   std::vector<Assumption> assumptions = {});

/// Whose code trains: a family of profiles/published/training.csv that simulate.efficiency names, else as fsdp.preset
/// says: "deepspeed", "megatron", "torchtitan", "own" or "pytorch".
std::string framework_of(const config::RunConfig& config);
/// The settings by which a framework's trainings are simulated on a cluster, "KEY=VALUE": of a family of published
/// trainings what most of its rows have, on that GPU if there are some. Throws ConfigError for another name.
std::vector<std::string> framework_settings(const std::string& framework, const std::string& cluster);

/// "12GB/s" as it is; else of a file that nccl-tests or `fsdpbench collectives` wrote on several nodes the bus
/// bandwidth of its largest message. Throws ConfigError.
std::string between_nodes(const std::string& rate_or_file);

/// Reasons that alone bring the steps of all `cells`, trainings on one cluster, nearest to those measured, best first.
std::vector<SharedReason> shared_reasons(const std::vector<Cell>& cells, const std::vector<MeasuredRate>& measured);
std::string shared_text(const std::vector<SharedReason>& reasons, const std::vector<std::string>& names);

std::string expectation_text(const Expectation& expectation);

}  // namespace fsdpbench::app
