#include "backend/cuda/nccl/call_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {
namespace {

bool is_done(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery after a collective");
  return true;
}

}  // namespace

OpsInFlight::~OpsInFlight() {
  for (const Op& op : ops_) {
    cudaEventDestroy(op.began);
    cudaEventDestroy(op.ended);
  }
  for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
}

cudaEvent_t OpsInFlight::take_event() {
  cudaEvent_t event = nullptr;
  if (free_events_.empty()) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  return event;
}

void OpsInFlight::follow(Lane lane, cudaStream_t stream) {
  if (ops_.empty() || ops_.back().lane == lane) return;
  check(cudaStreamWaitEvent(stream, ops_.back().ended, 0), "cudaStreamWaitEvent before a collective");
}

void OpsInFlight::begin(Collective kind, Lane lane, cudaStream_t stream) {
  oldest();
  ops_.push_back({.number = ++issued_, .kind = kind, .lane = lane, .began = take_event(), .ended = take_event()});
  check(cudaEventRecord(ops_.back().began, stream), "cudaEventRecord before a collective");
}

void OpsInFlight::end(cudaStream_t stream) {
  check(cudaEventRecord(ops_.back().ended, stream), "cudaEventRecord after a collective");
  ops_.back().launched = true;
}

const OpsInFlight::Op* OpsInFlight::oldest() {
  while (!ops_.empty() && ops_.front().launched && is_done(ops_.front().ended)) {
    free_events_.push_back(ops_.front().began);
    free_events_.push_back(ops_.front().ended);
    ops_.pop_front();
  }
  if (ops_.empty()) return nullptr;
  Op& op = ops_.front();
  if (!op.running && is_done(op.began)) {
    op.running = true;
    op.running_since = Clock::now();
  }
  return &op;
}

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
