#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "accept/gate/baseline.h"
#include "accept/gate/gated_result.h"
#include "accept/regression.h"
#include "runs/compare_report.h"

namespace fsdpbench::app {

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
