#include "launch/run_ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace fsdpbench::launch {
namespace {

/// The earliest cause and the earliest follower among all ranks' exceptions.
class FirstFailure {
 public:
  void add(const std::exception_ptr& failure, bool follower) {
    const std::lock_guard lock(mutex_);
    std::exception_ptr& first = follower ? follower_ : cause_;
    if (!first) first = failure;
  }
  void rethrow_if_any() const {
    if (cause_) std::rethrow_exception(cause_);
    if (follower_) std::rethrow_exception(follower_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr cause_;
  std::exception_ptr follower_;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(int rank)>& body) {
  FirstFailure failure;
  {
    std::vector<std::jthread> threads;
    threads.reserve(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([rank, &body, &failure] {
        try {
          body(rank);
        } catch (const Stopped&) {
          failure.add(std::current_exception(), true);
        } catch (...) {
          failure.add(std::current_exception(), false);
        }
      });
    }
  }
  failure.rethrow_if_any();
}

}  // namespace fsdpbench::launch
