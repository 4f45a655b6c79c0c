#include "launch/abort.h"

#include "launch/run_ranks.h"

namespace fsdpbench::launch {

void Abort::set(const std::exception_ptr& failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (first_) return;
  try {
    std::rethrow_exception(failure);
  } catch (const Stopped&) {
    return;
  } catch (const std::exception& e) {
    message_ = e.what();
  } catch (...) {
    message_ = "an unknown exception";
  }
  first_ = failure;
  set_.store(true);
  for (Listener* listener : listeners_) listener->aborted();
}

std::exception_ptr Abort::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

void Abort::add(Listener& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.insert(&listener);
}

void Abort::remove(Listener& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(&listener);
}

void Abort::throw_stopped() const {
  const std::lock_guard lock(mutex_);
  throw Stopped(message_);
}

}  // namespace fsdpbench::launch
