#include "launch/own_ranks.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"
#include "launch/addresses.h"
#include "launch/socket.h"

namespace fsdpbench::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

/// Pointers to texts that live on, and a null: what exec takes.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// The environment of this process, but with what `ours` says.
std::vector<std::string> environment_with(const std::vector<std::string>& ours) {
  std::vector<std::string> all = ours;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(ours, [&](const std::string& own) { return own.starts_with(name); })) all.push_back(text);
  }
  return all;
}

pid_t start(std::vector<std::string> arguments, std::vector<std::string> environment) {
  const std::vector<char*> words = pointers(arguments);
  const std::vector<char*> variables = pointers(environment);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  // Whatever ends the parent, `timeout -s KILL` among it, ends the ranks.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  execve("/proc/self/exe", words.data(), variables.data());
  _exit(127);
}

/// A port on which nobody listens now; rank 0 will.
int free_port() {
  std::random_device random;
  for (std::string error;;) {
    const int port = kFirstPort + static_cast<int>(random() % kPorts);
    if (listen_at(kLoopback, port, error)) return port;
  }
}

/// The letter after the name, which is in parentheses and may hold any character.
char state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(") ");
  return name_end == std::string::npos || name_end + 2 >= text.size() ? ' ' : text[name_end + 2];
}

/// The ranks that run, and how those ended that do not.
class Ranks {
 public:
  void add(pid_t pid) { ends_.push_back({.pid = pid}); }
  bool all_ended() const { return ended_ == ends_.size(); }
  bool any_ended() const { return ended_ > 0; }
  const std::vector<RankEnd>& ends() const { return ends_; }

  void signal(int number) const {
    for (const RankEnd& rank : ends_) {
      if (!over(rank)) ::kill(rank.pid, number);
    }
  }

  void look() { collect(WNOHANG); }

  void end_all() {
    look();
    for (RankEnd& rank : ends_) {
      if (over(rank)) continue;
      rank.killed = true;
      rank.state = state_of(rank.pid);
    }
    signal(SIGKILL);
    collect(0);
  }

 private:
  static bool over(const RankEnd& rank) { return rank.code >= 0; }

  void collect(int flags) {
    for (RankEnd& rank : ends_) {
      if (over(rank)) continue;
      int status = 0;
      pid_t done = 0;
      while ((done = waitpid(rank.pid, &status, flags)) < 0 && errno == EINTR) {
      }
      if (done == 0) continue;
      ++ended_;
      rank.code = done > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      rank.signal = done > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
  }

  std::vector<RankEnd> ends_;
  std::size_t ended_ = 0;
};

}  // namespace

std::vector<RankEnd> start_ranks(const std::vector<std::string>& arguments, int ranks, const RankPatience& patience,
                                 const std::function<bool()>& interrupted) {
  const int port = free_port();
  const std::string job = fmt::format("own {} {}", getpid(), Clock::now().time_since_epoch().count());
  std::vector<std::string> words{"fsdpbench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Clock::time_point began = Clock::now();
  Ranks all;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid =
        start(words, environment_with({fmt::format("{}={}", kOwnPort, port), fmt::format("{}={}", kOwnJob, job),
                                       fmt::format("{}={}", kOwnRank, rank), fmt::format("{}={}", kOwnRanks, ranks)}));
    if (pid < 0) {
      const int why = errno;
      all.end_all();
      throw BackendError(
          fmt::format("rank {} of {} cannot be started as a process: {}", rank, ranks, std::strerror(why)));
    }
    all.add(pid);
  }
  std::optional<Clock::time_point> first_end;
  std::optional<Clock::time_point> interrupt;
  for (all.look(); !all.all_ended(); all.look()) {
    if (all.any_ended() && !first_end) first_end = Clock::now();
    if (interrupted() && !interrupt) {
      interrupt = Clock::now();
      all.signal(SIGTERM);
    }
    if (seconds_since(began) > patience.limit_s || (first_end && seconds_since(*first_end) > patience.after_s) ||
        (interrupt && seconds_since(*interrupt) > patience.interrupt_s)) {
      all.end_all();
      break;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return all.ends();
}

std::string describe(const RankEnd& end) {
  if (end.killed) {
    const char* const doing = end.state == 'T'   ? ", stopped by a signal,"
                              : end.state == 'D' ? ", stuck in a call of the kernel or of a driver,"
                                                 : "";
    return fmt::format("still ran{} and was killed", doing);
  }
  if (end.signal != 0) return fmt::format("was ended by signal {} ({})", end.signal, strsignal(end.signal));
  return fmt::format("ended with code {}", end.code);
}

}  // namespace fsdpbench::launch
