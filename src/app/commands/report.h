#pragma once

#include <string>

namespace fsdpbench::app {

/// The command line of `fsdpbench report`.
struct ReportArguments {
  std::string folder;         ///< result folder of a run or a sweep
  std::string out;            ///< folder for the page; empty: the result folder's report/
  std::string memory_budget;  ///< as 18MiB; empty: none
};

/// Hands over to the Python package in analysis/, which draws figures and one HTML page. Throws Error if there
/// is no Python that has the package; does not return otherwise.
int report_command(const ReportArguments& arguments);

}  // namespace fsdpbench::app
