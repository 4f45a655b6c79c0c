#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::metrics {

/// What an op's time counts as.
enum class OpClass : std::uint8_t {
  computation,    ///< forward, backward, recomputation, gradient sums, norm and optimizer
  communication,  ///< collectives
  copy,           ///< casts, copy-in, copy-out, batch upload
  none,           ///< host waits and ops without work
};
OpClass classify(const schedule::Op& op);

/// Where one step of one rank went, in nanoseconds. U() is the length of an interval union over all lanes:
///   overlap = U(computation) + U(communication) - U(computation and communication)
///   exposed_communication = U(communication) - overlap
///   exposed_copy = U(everything) - U(computation and communication)
///   idle = step - U(everything)
/// so computation + exposed_communication + exposed_copy + idle = step, to the nanosecond.
struct StepBreakdown {
  int rank = 0;
  std::int64_t step = 0;  ///< length of the window
  std::int64_t computation = 0;
  std::int64_t communication = 0;
  std::int64_t overlap = 0;
  std::int64_t exposed_communication = 0;
  std::int64_t exposed_copy = 0;
  std::int64_t idle = 0;
  /// Share of the communication hidden behind computation, 0..100. Absent (negative) without communication.
  bool has_communication() const { return communication > 0; }
  double overlap_percent() const { return 100.0 * static_cast<double>(overlap) / static_cast<double>(communication); }
};

/// One entry per recorded step. Throws Error with ExitCode::check_failed if an identity does not hold: a record outside
/// its step, or a sum that is off by a nanosecond.
std::vector<StepBreakdown> break_down(const schedule::Schedules& schedules, const trace::RankTrace& trace);

}  // namespace fsdpbench::metrics
