#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "config/spelling.h"

namespace fsdpbench::config {

/// One key of a profile: everything that reading, writing, checking and documenting it needs.
struct Field {
  std::string table;    ///< "mesh"
  std::string key;      ///< "ranks"
  std::string valid;    ///< what it accepts, as the end of "… is not valid; expected "
  std::string meaning;  ///< for people, one line
  /// Takes `value` into the configuration; false (and nothing taken) if it is of the wrong type or out of range.
  std::function<bool(RunConfig&, const Value&)> read;
  std::function<Value(const RunConfig&)> write;

  std::string name() const { return table + '.' + key; }
};

/// All keys, table by table, in the order in which files and tables show them. The one place that lists them.
std::span<const Field> fields();

/// The field of "table.key"; null if there is none.
const Field* find_field(std::string_view name);

}  // namespace fsdpbench::config
