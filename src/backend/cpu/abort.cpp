#include "backend/cpu/abort.h"

#include "backend/cpu/wait_point.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {

void Abort::set(const std::exception_ptr& failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (first_) return;
  try {
    std::rethrow_exception(failure);
  } catch (const launch::Stopped&) {
    return;
  } catch (const std::exception& e) {
    message_ = e.what();
  } catch (...) {
    message_ = "an unknown exception";
  }
  first_ = failure;
  set_.store(true);
  for (WaitPoint* point : points_) point->notify();
}

std::exception_ptr Abort::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

void Abort::add(WaitPoint& point) {
  const std::lock_guard lock(mutex_);
  points_.insert(&point);
}

void Abort::remove(WaitPoint& point) {
  const std::lock_guard lock(mutex_);
  points_.erase(&point);
}

void Abort::throw_stopped() const {
  const std::lock_guard lock(mutex_);
  throw launch::Stopped(message_);
}

}  // namespace fsdpbench::backend::cpu
