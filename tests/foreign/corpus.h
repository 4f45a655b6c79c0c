#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "config/run_config.h"
#include "foreign/written_run.h"
#include "support/simulated_run.h"

namespace fsdpbench::foreign::corpus {

/// Damage done to a file after it was written.
struct Faults {
  bool shuffled = false;           ///< events in no order
  double cut_off = 0;              ///< this share of the text is missing at the end
  std::vector<int> missing_ranks;  ///< whose files are not there
  std::int64_t clock_ns = 0;       ///< the clock of rank r is r times so much late
};

/// A job that was traced: what it was, and how it was written.
struct CaseSpec {
  std::string name;
  std::string system;  ///< a preset's name (config/presets.h), "ddp", "inference", "moe", "alone"
  config::RunConfig config;
  Dialect dialect;
  Faults faults;
  std::uint64_t seed = 1;
};

struct CaseFile {
  int rank = 0;
  std::string json;
  std::vector<CollectiveTruth>
      collectives;  ///< in order of begin, then of stream; of cut-off files also those that are missing
};

struct Case {
  CaseSpec spec;
  std::shared_ptr<const testing::SimulatedRun> run;
  std::vector<CaseFile> files;
};

/// Files of the case; the same spec gives the same bytes.
Case make_case(const CaseSpec& spec);

/// Why the run of a case was exposed, as the metrics say it of the records that its files were written from. Of cases
/// with a run.
account::CauseReport true_causes(const Case& made);

/// All of them, by name: the presets with their defaults and with knobs turned, on some ranks, with noise and faults.
std::vector<CaseSpec> all_cases();

}  // namespace fsdpbench::foreign::corpus
