#include "app/commands/report.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "app/report/result_file.h"
#include "base/error.h"
#include "base/paths.h"
#include "config/find_file.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

/// What the user names, else the virtual environment that `make analysis` makes, else the one on PATH.
std::string choose_python() {
  if (const char* named = std::getenv("FSDPBENCH_PYTHON"); named != nullptr && *named != '\0') return named;
  const fs::path own = config::source_folder() / ".venv/bin/python";
  std::error_code error;
  return fs::exists(own, error) ? own.string() : "python3";
}

std::vector<char*> pointers(std::vector<std::string>& arguments) {
  std::vector<char*> result;
  for (std::string& argument : arguments) result.push_back(argument.data());
  result.push_back(nullptr);
  return result;
}

bool has_package(const std::string& python) {
  std::vector<std::string> command{
      python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('fsdpbench_analysis') is None)"};
  pid_t child = 0;
  if (posix_spawnp(&child, python.c_str(), nullptr, nullptr, pointers(command).data(), environ) != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

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
  if (holds("result.json") || holds("sweep.json") || holds("compare.json") || holds("tune.json") ||
      holds("gate.json")) {
    return;
  }
  throw ConfigError(fmt::format(
      "{}: {}; expected the folder of a run, an acceptance, a sweep, a comparison, a tuning or a gate.", folder,
      !path_exists(path)        ? "there is no such folder"
      : !fs::is_directory(path) ? "is no folder"
                                : "has no result.json, sweep.json, compare.json, tune.json or gate.json"));
}

}  // namespace

int report_command(const ReportArguments& arguments) {
  for (const std::string& folder : arguments.folders) check_folder(folder, arguments.folders.size() == 2);
  const std::string python = choose_python();
  put_off_interrupts();
  if (!has_package(python)) {
    throw Error(
        fmt::format("{} does not have the package fsdpbench_analysis, which draws reports: run `make analysis` "
                    "in {}, or let FSDPBENCH_PYTHON name a Python that has it.",
                    python, config::source_folder().string()));
  }
  std::vector<std::string> command{python, "-m", "fsdpbench_analysis", "report"};
  if (!arguments.out.empty()) command.push_back("--out=" + arguments.out);
  if (!arguments.memory_budget.empty()) command.push_back("--memory-budget=" + arguments.memory_budget);
  command.emplace_back("--");
  command.insert(command.end(), arguments.folders.begin(), arguments.folders.end());
  execvp(python.c_str(), pointers(command).data());
  throw Error(fmt::format("cannot start {}: {}", python, std::strerror(errno)));
}

}  // namespace fsdpbench::app
