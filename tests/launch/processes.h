#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace fsdpbench::launch::testing {

/// How one child process ended.
struct Outcome {
  int signal = 0;    ///< that killed it
  std::string text;  ///< what its body returned, or the exception it threw
};

/// Calls `body(rank)` in a process of its own for each rank and waits for all. The caller must have no other threads.
inline std::vector<Outcome> run_processes(int ranks, const std::function<std::string(int rank)>& body) {
  struct Child {
    pid_t pid;
    int pipe;
  };
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const pid_t pid = fork();
    if (pid == 0) {
      std::string text;
      try {
        text = body(rank);
      } catch (const std::exception& e) {
        text = e.what();
      }
      (void)!write(ends[1], text.data(), text.size());
      _exit(0);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<Outcome> outcomes;
  for (const Child& child : children) {
    Outcome outcome;
    char bytes[4096];
    for (ssize_t size = 0; (size = read(child.pipe, bytes, sizeof bytes)) > 0;) {
      outcome.text.append(bytes, static_cast<std::size_t>(size));
    }
    close(child.pipe);
    int status = 0;
    waitpid(child.pid, &status, 0);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    outcomes.push_back(outcome);
  }
  return outcomes;
}

}  // namespace fsdpbench::launch::testing
