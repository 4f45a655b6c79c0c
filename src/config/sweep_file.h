#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/spelling.h"

namespace fsdpbench::config {

/// A key of a run profile and the values that it takes in turn.
struct SweepAxis {
  std::string key;
  std::vector<Value> values;
};

using Settings = std::vector<std::pair<std::string, Value>>;

/// Some of the cells: those in which every key has one of its values.
struct CellRule {
  std::vector<SweepAxis> when;
  std::string reason;  ///< [[skip]]: why these cells are left out; empty: not said
  Settings set;        ///< [[when]]: what these cells also set
};

/// A sweep file: a base profile, keys that are fixed, keys that vary.
struct SweepFile {
  std::string title;
  std::string x;                    ///< hint for the report: the key along the x axis; empty: the first axis
  std::vector<std::string> series;  ///< hint for the report: keys that make separate curves
  std::string base;                 ///< path of a run profile, absolute; a name was looked up
  std::int64_t trials = 3;          ///< of each cell
  std::uint64_t seed = 1;           ///< of the order in which cells run
  Settings set;
  std::vector<SweepAxis> axes;
  std::vector<CellRule> skips;     ///< cells to leave out
  std::vector<CellRule> whens;     ///< cells with settings of their own
  std::vector<std::string> notes;  ///< for the user: words that were taken for others
};

/// Reads a sweep file (docs/sweep.md). Keys and their values are checked one by one, as in a profile; what does not fit
/// together is found cell by cell later. Throws ConfigError with file, line and what would be valid.
SweepFile load_sweep(const std::string& path);

}  // namespace fsdpbench::config
