#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"

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

/// Trainings that others have published: the rows of profiles/published/training.csv, whose README says what each
/// column means.
namespace fsdpbench::config {

/// The table in profiles/published. Throws ConfigError if this program has none beside it.
std::string find_published_trainings();

/// The row as a configuration that `simulate` takes, validated. Its cluster is in it; the efficiency is the typical
/// one. Throws ConfigError that names the line.
RunConfig published_config(const CsvRow& row);

/// The row for people: "llama3-8b in bf16 on 64 ranks of dgx-a100, 1 x 8192 tokens".
std::string published_title(const CsvRow& row);

}  // namespace fsdpbench::config
