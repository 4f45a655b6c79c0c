#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/op_runner.h"
#include "record/console.h"

namespace fsdpbench::app {

/// Says how far a run is: step, loss, remaining time. At most ten times a second on a terminal, every other second
/// elsewhere; the first and the last step always.
class Progress {
 public:
  /// `now_ns` is the time at which the first step begins (base/clock.h).
  Progress(Console& console, std::int64_t steps, std::int64_t now_ns);
  ~Progress() { console_.clear_progress(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps are complete. `loss`: of the last step whose loss is known; absent: none is.
  void update(std::int64_t done, const std::optional<engine::StepLoss>& loss, std::int64_t now_ns);

 private:
  Console& console_;
  std::int64_t steps_;
  std::int64_t begin_ns_;
  std::int64_t next_ns_;
};

/// "1 h 05 min", "2 min 03 s", "4 s", "0.3 s".
std::string format_duration(double seconds);

}  // namespace fsdpbench::app
