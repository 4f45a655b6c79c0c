#pragma once

#include <string>

#include "config/csv_rows.h"
#include "config/run_config.h"

/// Trainings that others have published: the rows of profiles/published/training.csv, whose README says what each
/// column means.
namespace fsdpbench::config {

/// The table in profiles/published. Throws ConfigError if this program has none beside it.
std::string find_published_trainings();

/// The row as a configuration that `simulate` takes, validated. Its cluster is in it; the efficiency is the typical one.
/// Throws ConfigError that names the line.
RunConfig published_config(const CsvRow& row);

/// The row for people: "llama3-8b, 64 bf16 on dgx-a100, 1 x 8192 tokens, checkpointing every:2".
std::string published_title(const CsvRow& row);

}  // namespace fsdpbench::config
