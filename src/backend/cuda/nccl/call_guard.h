#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "launch/abort.h"

namespace fsdpbench::backend::cuda {

/// How long a call may take: at all, and after the run has failed.
struct CallDeadlines {
  std::chrono::duration<double> call;
  std::chrono::duration<double> after_failure;
};

/// Watches over the blocking calls of one thread, from a thread of its own. Nobody else may abort a communicator while
/// a call of it is under way, so a call that does not return can only be ended with the process: `give_up` is called
/// with last words, once.
class CallGuard {
 public:
  CallGuard(const launch::Abort& abort, CallDeadlines deadlines, std::string who,
            std::function<void(const std::string& last_words)> give_up);
  ~CallGuard();
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

  /// The watched thread is in this call until leave(). No call is in another.
  void enter(const char* call, const std::string& group);
  void leave();

 private:
  class Watch;
  std::shared_ptr<Watch> watch_;  ///< its thread is detached and may outlive this
};

}  // namespace fsdpbench::backend::cuda
