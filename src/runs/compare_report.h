#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "account/judge.h"
#include "record/json_fields.h"
#include "runs/result_file.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// Evidence that a comparison rests on.
enum class Evidence : std::uint8_t {
  interleaved,  ///< A and B took turns
  stored,       ///< one run a side, at some time
  simulated,    ///< one simulation a side: another one would be the same
};

/// Results of the trials of one side, in the order in which they ran.
struct ComparedSide {
  std::string name;           ///< as the user wrote it: profile and overrides
  nlohmann::json config;      ///< resolved
  std::vector<Trial> trials;  ///< each with metrics

  /// Step times in milliseconds, by trial.
  std::vector<std::vector<double>> steps() const;
  /// The median of each trial.
  std::vector<double> medians() const;
  double median_ms() const;
};

/// A finished run as a side of one trial. Throws ConfigError if the result is damaged.
ComparedSide stored_side(const std::string& name, const ResultFile& result);

/// A key of the configuration that A and B do not share.
struct DifferingKey {
  std::string key;  ///< "fsdp.strategy"
  nlohmann::json a;
  nlohmann::json b;
  bool operator==(const DifferingKey&) const = default;
};
template <>
Fields<DifferingKey> declared();

/// All keys whose values differ between two resolved configurations, {"table": {"key": value}}; a key that one of them
/// lacks has the value null there.
std::vector<DifferingKey> differing_keys(const nlohmann::json& a, const nlohmann::json& b);

/// Two sides and what became of the question whether B is slower.
struct Comparison {
  ComparedSide a;
  ComparedSide b;
  Evidence evidence = Evidence::stored;
  double threshold = account::kPracticalThreshold;
  account::Difference difference;
  std::optional<double> aa_noise;  ///< of whole trials: the larger of A's and B's own
};

/// Trials by their medians where they took turns, else the steps of one run a side: then it speaks of two runs, not of
/// two configurations. Throws std::invalid_argument as account::judge() does.
Comparison compare_sides(ComparedSide a, ComparedSide b, Evidence evidence,
                         double threshold = account::kPracticalThreshold);

/// The verdict in one sentence: "B takes 5.2 % more step time than A (99 % interval of B / A: 1.041 to 1.063)."
std::string verdict_sentence(const Comparison& comparison);

/// "A = …, B = …", the keys that differ, medians, parts of the step, memory, and the verdict.
std::string compare_table(const Comparison& comparison);

inline constexpr int kCompareSchemaVersion = 1;
/// The content of compare.json (docs/result-format.md).
nlohmann::json compare_json(const Comparison& comparison);
const ObjectFacts& comparison_file_facts();

}  // namespace fsdpbench::app
