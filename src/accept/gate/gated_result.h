#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "accept/regression.h"
#include "base/error.h"
#include "record/json_part.h"

namespace fsdpbench::app {

/// Named facts of a machine at the time of a measurement. Names of hosts do not count: the nodes of a fleet,
/// and the runners of a CI, are one machine.
class MachinePrint {
 public:
  /// Meaning of a difference in a fact.
  enum class Part : std::uint8_t {
    hardware,  ///< another machine: processor, GPUs, memory, ranks, nodes, how they communicate
    software,  ///< the same machine with another kernel, driver, library or build
    program,   ///< another revision of this program: what a gate is for
  };
  struct Fact {
    std::string name;
    std::string value;
    Part part = Part::hardware;
    friend bool operator==(const Fact&, const Fact&) = default;
  };

  /// From the "world" of a result file. Throws ConfigError that names the key that is missing or wrong.
  static MachinePrint of_world(const JsonPart& world);
  nlohmann::json to_json() const;

  const std::vector<Fact>& facts() const { return facts_; }
  /// The value of a fact; empty if there is none.
  std::string value(std::string_view name) const;
  /// "2 x NVIDIA H100, 2 ranks", "AMD EPYC, 4 ranks": for lists.
  std::string summary() const;

  friend bool operator==(const MachinePrint&, const MachinePrint&) = default;

 private:
  std::vector<Fact> facts_;
};

std::string_view to_string(MachinePrint::Part part);

/// A fact that two do not share; a value that one lacks is empty.
struct MachineDifference {
  std::string name;
  std::string before;
  std::string now;
  MachinePrint::Part part = MachinePrint::Part::hardware;
};
std::vector<MachineDifference> differences(const MachinePrint& before, const MachinePrint& now);

/// A result as gates compare it: who measured what, whether it was accepted, and its figures. Of `accept`, `run` and
/// `simulate`.
struct GatedResult {
  std::string name;                   ///< of its folder, for people
  std::string kind;                   ///< "acceptance" or "run"
  std::string date;                   ///< as its world has it; empty: simulated
  std::string digest;                 ///< of its file
  MachinePrint machine;               ///< it was measured on
  nlohmann::json measured;            ///< what, by key: only results with the same can be compared
  std::string not_accepted_because;   ///< why its own verdict is no pass; empty: it is
  std::vector<std::string> injected;  ///< faults, "inject.slow_rank = 2": a failure was rehearsed
  accept::ResultFigures figures;
};

/// Refusal of a result that is whole, of which nothing can be gated: a sweep's or collectives', or a run without a
/// measured step. A baseline leaves it out.
class NotGated : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// Reads the result that a person means by `given`: a file, or a folder with result.json. Throws ConfigError that names
/// the file and says what is expected, also for a run without a measured step.
GatedResult read_gated_result(const std::string& given);

}  // namespace fsdpbench::app
