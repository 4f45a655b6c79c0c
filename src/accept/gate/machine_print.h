#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace fsdpbench::app
