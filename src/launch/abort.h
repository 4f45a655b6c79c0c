#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <set>
#include <string>

namespace fsdpbench::launch {

/// One a run: the first failure of any rank, lane or process, and the means to wake everybody who waits. Thread-safe.
class Abort {
 public:
  /// Somebody who may be blocked and must look at is_set() again.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Called once, by the thread that sets the abort, under a lock: it must return at once.
    virtual void aborted() = 0;
  };

  /// Keeps `failure` if it is the first one and wakes every listener. A launch::Stopped is no failure of its own
  /// and changes nothing.
  void set(const std::exception_ptr& failure) noexcept;
  /// Whether somebody has failed.
  bool is_set() const { return set_.load(); }
  /// Throws launch::Stopped with the first failure's message if there is one.
  void throw_if_set() const {
    if (is_set()) throw_stopped();
  }
  /// The first failure; null if none.
  std::exception_ptr first() const;

  /// From now on `listener` hears of the first failure; it must be removed before it goes.
  void add(Listener& listener);
  void remove(Listener& listener);

 private:
  [[noreturn]] void throw_stopped() const;

  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  std::exception_ptr first_;
  std::string message_;
  std::set<Listener*> listeners_;
};

}  // namespace fsdpbench::launch
