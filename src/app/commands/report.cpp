#include "app/commands/report.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "app/report/report_page.h"
#include "app/report/result_file.h"
#include "base/error.h"
#include "base/paths.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// Until the package has handlers of its own, which end with our exit code: Python's would print a traceback.
void put_off_interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
}

/// Python would say so, too, but later and in its own words.
void check_folder(const std::string& folder, bool of_run) {
  const fs::path path(folder);
  if (of_run) {
    read_result(folder);
    return;
  }
  const auto holds = [&](const char* name) { return path_exists(path / name); };
  if (holds("result.json") || holds("sweep.json")) {
    read_result_to_draw(folder);
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

}  // namespace

int report_command(const ReportArguments& arguments) {
  for (const std::string& folder : arguments.folders) check_folder(folder, arguments.folders.size() == 2);
  put_off_interrupts();
  std::vector<std::string> options;
  if (!arguments.out.empty()) options.push_back("--out=" + arguments.out);
  if (!arguments.memory_budget.empty()) options.push_back("--memory-budget=" + arguments.memory_budget);
  std::vector<std::string> command = page_command(find_page_python(), options, arguments.folders);
  std::vector<char*> pointers;
  for (std::string& argument : command) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execvp(pointers.front(), pointers.data());
  throw Error(fmt::format("cannot start {}: {}", command.front(), std::strerror(errno)));
}

}  // namespace fsdpbench::app
