#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "accept/gate/gated_result.h"
#include "accept/regression.h"
#include "runs/compare_report.h"

namespace fsdpbench::app {

/// Earlier results of one machine and one measurement, with which a gate compares later results.
struct Baseline {
  std::string name;
  std::vector<GatedResult> results;   ///< at least one
  std::vector<std::string> left_out;  ///< of the folder, each with the reason
};

/// Baseline meant by `given`: a result, whether it was accepted or not; or a folder of results (files, or folders
/// of their own), of which those count that fit `now` best: of its kind, the same measurement, then the fewest other
/// facts of the machine, and all of one machine, the program apart. A result that was not accepted is left out, unless
/// `now` was not for the same reason; `now` itself, and a copy of a result, count not at all. Throws ConfigError that
/// says what there is instead, also if any result of the folder is damaged.
Baseline find_baseline(const std::string& given, const GatedResult& now);

/// Differences between the machines of the two sides that are on purpose.
enum class OtherMachine : std::uint8_t {
  no,        ///< none but the program's revision
  software,  ///< kernel, drivers, libraries, build: two versions on one machine
  any,       ///< hardware, too
};

/// Result of a gate.
struct GateReport {
  Baseline before;
  std::vector<GatedResult> now;
  double threshold = accept::kChangeThreshold;
  std::vector<MachineDifference> machine;
  std::vector<DifferingKey> measured;  ///< what was not measured alike: then nothing is compared
  std::string not_comparable_because;  ///< empty: the figures were compared
  std::vector<accept::Change> changes;
  std::vector<accept::Judgement> judgements;  ///< of the changes, and of the result itself
  accept::Verdict verdict = accept::Verdict::inconclusive;

  /// One of base/error.h: ok, slower (a figure is worse), inconclusive, other_machine (not comparable).
  int exit_code() const;
  /// "PASS: 12 figures, none worse than acceptance-1f2e3d4c by 5 % or more"
  std::string headline() const;
};

/// Holds `now` (not empty, of one kind) against a baseline. Pure.
GateReport judge_gate(const Baseline& baseline, std::vector<GatedResult> now, OtherMachine allowed, double threshold);

inline constexpr int kGateSchemaVersion = 2;
/// For people; for a CI's summary; for programs (docs/result-format.md). JUnit is junit_xml() of the judgements.
std::string gate_table(const GateReport& report, bool verbose = false);
std::string gate_markdown(const GateReport& report);
nlohmann::json gate_json(const GateReport& report);
const ObjectFacts& gate_file_facts();

}  // namespace fsdpbench::app
