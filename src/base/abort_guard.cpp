#include "base/abort_guard.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/read_input.h"

namespace fsdpbench {

struct AbortGuard::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

void exit_at_once(const std::string& last_words) {
  std::fputs(("fsdpbench: " + clean_text(last_words, kMostOfAMessage) + "\n").c_str(), stderr);
  std::fflush(stderr);
  _exit(static_cast<int>(ExitCode::rank_failed));
}

AbortGuard::AbortGuard(std::chrono::milliseconds deadline, std::string last_words,
                       std::function<void(const std::string& last_words)> give_up)
    : shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_, deadline, words = std::move(last_words), give_up = std::move(give_up)] {
    std::unique_lock lock(shared->mutex);
    if (shared->changed.wait_for(lock, deadline, [&] { return shared->done; })) return;
    lock.unlock();
    give_up(words);
  }).detach();
}

AbortGuard::~AbortGuard() {
  const std::lock_guard lock(shared_->mutex);
  shared_->done = true;
  shared_->changed.notify_all();
}

}  // namespace fsdpbench
