#include "app/commands/report.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
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

}  // namespace

int report_command(const ReportArguments& arguments) {
  const std::string python = choose_python();
  if (!has_package(python)) {
    throw Error(
        fmt::format("{} does not have the package fsdpbench_analysis, which draws reports: run `make analysis` "
                    "in {}, or let FSDPBENCH_PYTHON name a Python that has it.",
                    python, config::source_folder().string()));
  }
  std::vector<std::string> command{python, "-m", "fsdpbench_analysis", "report"};
  if (!arguments.out.empty()) command.push_back("--out=" + arguments.out);
  if (!arguments.memory_budget.empty()) command.push_back("--memory-budget=" + arguments.memory_budget);
  command.insert(command.end(), {"--", arguments.folder});
  execvp(python.c_str(), pointers(command).data());
  throw Error(fmt::format("cannot start {}: {}", python, std::strerror(errno)));
}

}  // namespace fsdpbench::app
