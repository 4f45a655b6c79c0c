#include "app/report_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/plugin.h"
#include "config/find_file.h"
#include "launch/socket.h"

namespace fsdpbench::app {
namespace {

std::string choose_python() {
  if (const char* named = std::getenv("FSDPBENCH_PYTHON"); named != nullptr && *named != '\0') return named;
  const std::filesystem::path own = config::home_folder() / ".venv/bin/python";
  std::error_code error;
  return std::filesystem::exists(own, error) ? own.string() : "python3";
}

/// -I: it looks for modules neither in the current folder, which may be a result folder of somebody else with a
/// matplotlib.py in it, nor where PYTHONPATH leads; an empty part of that is the current folder, too.
std::vector<std::string> isolated(const std::string& python, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{python, "-I"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

/// A program that was started, with a pipe to what it prints as a result.
struct Started {
  pid_t child = 0;  ///< 0: it could not be started
  int output = -1;
};

Started start(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  Started started{.output = ends[0]};
  if (posix_spawnp(&started.child, command.front().c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
    started.child = 0;
  }
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  return started;
}

/// Output of `program` until it ends or `until` has come; then it is ended.
std::string rest_of(const Started& program, launch::Deadline until) {
  std::string text;
  char piece[4096];
  for (;;) {
    pollfd wanted{program.output, POLLIN, 0};
    if (std::chrono::steady_clock::now() > until) kill(program.child, SIGKILL);
    if (poll(&wanted, 1, launch::kPollMs) <= 0) continue;
    const ssize_t got = read(program.output, piece, sizeof piece);
    if (got <= 0) break;
    text.append(piece, static_cast<std::size_t>(got));
  }
  ::close(program.output);
  return text;
}

/// Whether it began, and ended with 0; what it prints as a result is dropped.
bool succeeds(std::vector<std::string> command) {
  const Started program = start(std::move(command));
  if (program.child == 0) return false;
  (void)rest_of(program, launch::Deadline::max());
  int status = 0;
  while (waitpid(program.child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// The command line of `python -I -m fsdpbench.analysis COMMAND`.
std::vector<std::string> page_command(const std::string& python, const std::string& command,
                                      const std::vector<std::string>& options, const std::vector<std::string>& paths) {
  std::vector<std::string> words = isolated(python, {"-m", "fsdpbench.analysis", command});
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  words.insert(words.end(), paths.begin(), paths.end());
  return words;
}

/// Until the package has handlers of its own, which end with our exit code: Python's would print a traceback.
void put_off_interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

std::string find_page_python() {
  const std::string python = choose_python();
  if (succeeds(isolated(
          python, {"-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('fsdpbench') is None)"}))) {
    return python;
  }
  throw Error(fmt::format(
      "{} does not have the package fsdpbench, which draws reports, watches jobs and reads other systems' settings: "
      "`pip install dist/fsdpbench-*.whl` there, or `make analysis` in the source tree, or let FSDPBENCH_PYTHON name "
      "a Python that has it. PYTHONPATH, the current folder and packages "
      "of one user are not looked at.",
      python));
}

void become_page_program(const std::string& command, const std::vector<std::string>& options,
                         const std::vector<std::string>& paths) {
  std::vector<std::string> words = page_command(find_page_python(), command, options, paths);
  put_off_interrupts();
  setenv("FSDPBENCH_PROGRAM", (program_folder() / "fsdpbench").c_str(), 1);  // whom the package asks
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers.front(), pointers.data());
  throw Error(fmt::format("cannot start {}: {}", words.front(), std::strerror(errno)));
}

std::string page_program_output(const std::string& command, const std::vector<std::string>& options,
                                double patience_s) {
  const launch::Deadline until = launch::deadline_in(patience_s);
  const Started program = start(page_command(find_page_python(), command, options, {}));
  if (program.child == 0) throw Error(fmt::format("cannot start {}", command));
  std::string text = rest_of(program, until);
  (void)waitpid(program.child, nullptr, 0);
  return text;
}

std::filesystem::path draw_page(const std::filesystem::path& folder) {
  if (!succeeds(page_command(find_page_python(), "report", {}, {folder.string()}))) {
    throw Error(fmt::format("The page of {} was not drawn; its other files are whole.", folder.string()));
  }
  return folder / "report" / "report.html";
}

}  // namespace fsdpbench::app
