#pragma once

#include <functional>
#include <string>

#include "base/error.h"

namespace fsdpbench::launch {

/// Thrown by a rank that was stopped because another one failed: it carries that failure's message and is never the
/// cause itself.
class Stopped : public BackendError {
 public:
  explicit Stopped(const std::string& message) : BackendError(message) {}
};

/// Calls `body(rank)` for the ranks 0..ranks-1, each on a thread of its own, and returns when all have ended.
/// Then rethrows the earliest exception that is not Stopped; if all are Stopped, the earliest of those.
/// It stops nobody: a body that fails must itself see to it that the others do not wait for it.
void run_ranks(int ranks, const std::function<void(int rank)>& body);

}  // namespace fsdpbench::launch
