#pragma once

#include <cstdint>

namespace fsdpbench::backend::cpu {

/// How long the thread that makes it has been ready to run while all cores that it may use ran others: what Linux keeps
/// of each thread (the second number of /proc/thread-self/schedstat, "run delay"). For that thread only.
class CoreWait {
 public:
  CoreWait();
  ~CoreWait();
  CoreWait(const CoreWait&) = delete;
  CoreWait& operator=(const CoreWait&) = delete;

  /// Since the thread began, in nanoseconds; it never shrinks. 0 where the system does not tell.
  std::int64_t total_ns() const;

 private:
  int file_;  // -1: there is none
};

}  // namespace fsdpbench::backend::cpu
