#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "account/statistics.h"
#include "foreign/job_trace.h"

namespace fsdpbench::foreign {

// Rows as they stand in a file, and what they know each other by.

/// Row of the host with its links; -1: none.
struct LinkedHost {
  HostRow row;
  std::int64_t correlation = -1;  ///< of a call, and of what it launched
  std::int64_t external = -1;     ///< of an op, of the calls in it and of what those launched
};
struct LinkedDevice {
  DeviceRow row;
  std::int64_t correlation = -1, external = -1;
};

/// Arrows from calls to what they launched ("ac2g"), for files whose calls have no correlation.
struct Arrows {
  struct End {
    std::int64_t id = 0, time_ns = 0;
    std::int32_t track = 0;  ///< a thread, or a stream
  };
  std::vector<End> begins, ends;
};

/// Sorts the host's rows by begin, those that enclose others first, and finds each one's parent. `apart`: by name,
/// whether rows of it are ranges that others need not lie inside of.
void nest(std::vector<LinkedHost>& host, const std::vector<bool>& apart);

/// Sorts the device's rows by begin, and finds each one's launch: by correlation, else by arrow, else the op with its
/// external id, within which the call was. Of several calls with one correlation it is the outer one that launches.
void link_launches(const std::vector<LinkedHost>& host, const Arrows& arrows, std::vector<LinkedDevice>& device);

/// Gives rows of kind `collective` that do not tell what they communicate the collective of the host's call around
/// their launch, or of the op with their external id.
void link_collectives(const std::vector<LinkedHost>& host, std::vector<LinkedDevice>& device);

/// Parts of a rank's time in which it waits for no other rank.
enum class OwnPart : std::uint8_t { kernels, host, garbage, input, communication };
/// "its kernels", "its host", "its garbage collection", "its input", "its communication"
std::string_view to_string(OwnPart part);

/// One rank's step without its waiting for peers, in nanoseconds.
struct OwnTime {
  std::int64_t kernels = 0;        ///< computation
  std::int64_t host = 0;           ///< nothing ran on the device, for none of the reasons below
  std::int64_t garbage = 0;        ///< Python collected garbage meanwhile
  std::int64_t input = 0;          ///< a loader was waited for
  std::int64_t communication = 0;  ///< exposed transfers and copies
  std::int64_t all() const { return kernels + host + garbage + input + communication; }
};

/// A rank for which the others wait in each step.
struct LateRank {
  int place = 0;             ///< among the job's ranks
  account::Summary late_ms;  ///< a step: its own time beyond the median of the others'
  OwnPart where = OwnPart::kernels;
  double where_ms = 0;  ///< a step: what that part of it takes beyond the others'
  double work = 0;      ///< FLOP of its matrix products ÷ the mean of the others'; 0: the files have no shapes
  /// Whether there are steps enough for an interval: else it was late in these, and nobody is accused.
  bool certain() const { return late_ms.interval == account::IntervalKind::bootstrap; }
};

/// `own`: by rank and step; `blamed`: the rank that most of the waiting is for, a place; -1: there is none. None where
/// no rank is late for certain.
///
/// [Note: the late rank of a trace]
/// Ranks that exchange something in each step have steps of one length, so what one does on its own beyond the others
/// is what they wait for it, wherever in the step that is and whatever hides it. It is late if the lower end of that is
/// above kLeastLate of a step. One step alone has no interval: there it takes twice as much. For a rank that is blamed
/// for most of what the others wait for, the lower end needs to be above 0 only: with two ranks each waits for the
/// other now and then.
std::optional<LateRank> find_late_rank(const std::vector<std::vector<OwnTime>>& own, double step_ms, int blamed = -1);
inline constexpr double kLeastLate = 0.05;

}  // namespace fsdpbench::foreign
