#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace fsdpbench {

/// Writes `last_words` to stderr and ends the process at once with the exit code of a failed rank.
void exit_at_once(const std::string& last_words);

/// A deadline for what cannot be trusted to return, as ncclCommAbort: unless this is destroyed before it, `give_up` is
/// called with `last_words`, on a thread of its own.
class AbortGuard {
 public:
  AbortGuard(std::chrono::milliseconds deadline, std::string last_words,
             std::function<void(const std::string& last_words)> give_up);
  ~AbortGuard();
  AbortGuard(const AbortGuard&) = delete;
  AbortGuard& operator=(const AbortGuard&) = delete;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  ///< the thread is detached and may outlive this
};

}  // namespace fsdpbench
