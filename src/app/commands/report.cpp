#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/commands/command.h"
#include "app/report_page.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "runs/result_file.h"

namespace fsdpbench::app {
namespace {

/// The command line of `fsdpbench report`.
struct ReportArguments {
  std::vector<std::string> folders;  ///< one result folder of a run, a sweep or a comparison; or those of two runs
  std::string out;                   ///< folder for the page; empty: the result folder's report/
  std::string memory_budget;         ///< as 18MiB; empty: none
};

namespace fs = std::filesystem;

/// Python would say so, too, but later and in its own words.
void check_folder(const std::string& folder, bool of_run) {
  const fs::path path(folder);
  if (of_run) {
    read_result(folder);
    return;
  }
  const auto holds = [&](const char* name) { return path_exists(path / name); };
  if (holds("result.json") || holds("sweep.json")) {
    read_any_result(folder);
    return;
  }
  if (holds("compare.json") || holds("tune.json") || holds("gate.json") || holds("explain.json")) {
    return;
  }
  throw ConfigError(
      fmt::format("{}: {}; expected the folder of a run, an acceptance, a sweep, a comparison, a tuning, a gate or an "
                  "explained trace.",
                  folder,
                  !path_exists(path) ? "there is no such folder"
                  : !fs::is_directory(path)
                      ? "is no folder"
                      : "has no result.json, sweep.json, compare.json, tune.json, gate.json or explain.json"));
}

/// Hands over to the Python package in analysis/, which draws figures and one HTML page; of two runs, side by side.
/// Throws ConfigError if a folder holds no result, Error if there is no Python that has the package; does not return
/// otherwise.
int draw_report(const ReportArguments& arguments) {
  for (const std::string& folder : arguments.folders) check_folder(folder, arguments.folders.size() == 2);
  std::vector<std::string> options;
  if (!arguments.out.empty()) options.push_back("--out=" + arguments.out);
  if (!arguments.memory_budget.empty()) options.push_back("--memory-budget=" + arguments.memory_budget);
  become_page_program("report", options, arguments.folders);
}

constexpr const char* kReportHelp =
    R"(Writes report.html, which needs no other file, and each figure as SVG and PNG. The Python package in analysis/
draws them; `make analysis` installs it.

Examples
  fsdpbench report runs/first
  fsdpbench report runs/first runs/no-prefetch
  fsdpbench report runs/prefetch-limit-link --memory-budget 18MiB
)";

}  // namespace

Command report_command() {
  const auto report_it = std::make_shared<ReportArguments>();
  Command command("report", CommandGroup::understand, "Draw a run, a sweep or two runs, as one HTML page", kReportHelp);
  command
      .argument("DIR", &report_it->folders, "Result folder of a run, sweep, comparison or tuning; or those of two runs")
      .counts.emplace(1, 2);
  command.option("-o,--out", &report_it->out, "DIR", "Folder for the page; default: report/ in the first DIR");
  command.option("--memory-budget", &report_it->memory_budget, "SIZE",
                 "Marked in the heat map of a sweep: 18MiB, 64GiB");
  command.body = [report_it](const Call&) { return draw_report(*report_it); };
  return command;
}

}  // namespace fsdpbench::app
