#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <set>
#include <string>

namespace fsdpbench::backend::cpu {

class WaitPoint;

/// One a world: the first failure of any rank or lane, and the means to wake everybody who waits. Thread-safe.
class Abort {
 public:
  /// Keeps `failure` if it is the first one and wakes every WaitPoint. A launch::Stopped is no failure of its own
  /// and changes nothing.
  void set(const std::exception_ptr& failure) noexcept;
  bool is_set() const { return set_.load(); }
  /// Throws launch::Stopped with the first failure's message if there is one.
  void throw_if_set() const {
    if (is_set()) throw_stopped();
  }
  /// The first failure; null if none.
  std::exception_ptr first() const;

 private:
  friend class WaitPoint;
  void add(WaitPoint& point);
  void remove(WaitPoint& point);
  [[noreturn]] void throw_stopped() const;

  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  std::exception_ptr first_;
  std::string message_;
  std::set<WaitPoint*> points_;
};

}  // namespace fsdpbench::backend::cpu
