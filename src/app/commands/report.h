#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench report`.
struct ReportArguments {
  std::vector<std::string> folders;  ///< one result folder of a run, a sweep or a comparison; or those of two runs
  std::string out;                   ///< folder for the page; empty: the result folder's report/
  std::string memory_budget;         ///< as 18MiB; empty: none
};

/// Hands over to the Python package in analysis/, which draws figures and one HTML page; of two runs, side by side.
/// Throws ConfigError if a folder holds no result, Error if there is no Python that has the package; does not return
/// otherwise.
int report_command(const ReportArguments& arguments);

}  // namespace fsdpbench::app
