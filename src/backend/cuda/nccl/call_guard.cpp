#include "backend/cuda/nccl/call_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace fsdpbench::backend::cuda {

class CallGuard::Watch {
 public:
  Watch(const launch::Abort& abort, CallDeadlines deadlines, std::string who,
        std::function<void(const std::string& last_words)> give_up)
      : abort_(&abort), deadlines_(deadlines), who_(std::move(who)), give_up_(std::move(give_up)) {}

  void enter(const char* call, const std::string& group) {
    const std::lock_guard lock(mutex_);
    call_ = call;
    group_ = group;
    begin_ = Clock::now();
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    call_ = nullptr;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    abort_ = nullptr;
    changed_.notify_all();
  }

  void watch() {
    constexpr std::chrono::milliseconds kEvery{20};
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kEvery, [&] { return abort_ == nullptr; })) {
      const std::string words = last_words();
      if (words.empty()) continue;
      lock.unlock();
      give_up_(words);
      return;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Empty while nothing is late.
  std::string last_words() {
    const Clock::time_point now = Clock::now();
    if (!abort_->is_set()) failed_at_ = now;
    if (call_ == nullptr) return "";
    const auto is_late = [&](Clock::time_point since, std::chrono::duration<double> allowed) {
      return now - since > allowed;
    };
    const std::string what = fmt::format("{}: {} of group {} has not returned after", who_, call_, group_);
    constexpr const char* kEnd =
        "A blocking call of NCCL cannot be stopped (nccl.blocking = false has none): this process ends now.";
    if (is_late(begin_, deadlines_.call)) return fmt::format("{} {:g} s. {}", what, deadlines_.call.count(), kEnd);
    if (is_late(std::max(begin_, failed_at_), deadlines_.after_failure)) {
      return fmt::format("{} {:g} s, and the run has failed. {}", what, deadlines_.after_failure.count(), kEnd);
    }
    return "";
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const launch::Abort* abort_;  ///< null: the guard is gone
  const CallDeadlines deadlines_;
  const std::string who_;
  const std::function<void(const std::string& last_words)> give_up_;
  const char* call_ = nullptr;  ///< null: the thread is in none
  std::string group_;
  Clock::time_point begin_;
  Clock::time_point failed_at_ = Clock::now();  ///< if it has failed; else of the last look
};

CallGuard::CallGuard(const launch::Abort& abort, CallDeadlines deadlines, std::string who,
                     std::function<void(const std::string& last_words)> give_up)
    : watch_(std::make_shared<Watch>(abort, deadlines, std::move(who), std::move(give_up))) {
  std::thread([watch = watch_] { watch->watch(); }).detach();
}
CallGuard::~CallGuard() { watch_->end(); }

void CallGuard::enter(const char* call, const std::string& group) { watch_->enter(call, group); }
void CallGuard::leave() { watch_->leave(); }

}  // namespace fsdpbench::backend::cuda
