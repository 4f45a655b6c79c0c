#pragma once

#include <map>
#include <string>
#include <vector>

namespace fsdpbench::config {

/// One line of a table: its fields by the names of the first line.
struct CsvRow {
  std::string place;  ///< "file:line"
  std::map<std::string, std::string> fields;

  /// Throw ConfigError naming place, column and value if it is not there or not such a thing.
  const std::string& text(const std::string& column) const;
  double number(const std::string& column) const;
  int integer(const std::string& column) const;
  /// Empty where there is no such column: tables of others may be older than it.
  std::string text_if_any(const std::string& column) const;
};

/// A file of values between commas, which are in no value; the first line names the columns. Throws ConfigError.
std::vector<CsvRow> read_csv(const std::string& path);

}  // namespace fsdpbench::config
