#pragma once

#include <string>
#include <vector>

#include "accept/collectives/collective_buffers.h"
#include "backend/backend.h"
#include "base/clock.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// Place where ranks combine what they measured, whether they are threads or processes: beside the data, whose
/// correctness may be in question. One for all ranks of this process.
class RankMeeting {
 public:
  /// `session`: null if all ranks are threads of this process; must outlive this.
  RankMeeting(int ranks, launch::Session* session);

  /// Rank 0 gets everybody's text by rank, the others nothing. Collective; blocks the host threads.
  std::vector<std::string> gather(backend::RankContext& context, std::string mine);
  /// Rank 0 gets everybody's value by rank, as its fields are declared. Numbers must be finite.
  template <class T>
  std::vector<T> gather(backend::RankContext& context, const T& mine) {
    return read_messages<T>(gather(context, message_of(mine)));
  }
  /// Everybody gets rank 0's values. Collective.
  std::vector<double> broadcast(backend::RankContext& context, const std::vector<double>& from_root);

 private:
  launch::Session* session_;
  std::vector<std::string> slots_;  // of threads
};

/// Time of base/clock.h since then.
inline double us_since(std::int64_t began_ns) { return static_cast<double>(now_ns() - began_ns) * 1e-3; }
inline double seconds_since(std::int64_t began_ns) { return us_since(began_ns) * 1e-6; }

/// Durations of timed ops.
std::vector<double> microseconds(const std::vector<backend::Stamp>& stamps);

/// Times and checks messages on one rank, one after another; all ranks of the world call the same. It needs the
/// arguments of an iteration: how many, of what, -a, -c, --check-all, -w, and the largest size.
class CollectiveTimer {
 public:
  /// All must outlive this. Throws ResourceError as Device::allocate.
  CollectiveTimer(const CollectivesArguments& arguments, backend::RankContext& context, RankMeeting& meeting)
      : a_(arguments),
        context_(context),
        meeting_(meeting),
        buffers_(context, *arguments.most_bytes, kLane, arguments.root) {}

  /// Collective. What it returns means something on rank 0 only.
  Timing timing(const Message& message, Reduction reduction, bool in_place);

 private:
  static constexpr Lane kLane = Lane::all_gather;

  Pattern pattern(const Message& message) const;
  float scale(Reduction reduction) const;
  /// New data in the buffers of this rank, which only `expected` knows.
  Pattern refill(const Message& message, bool in_place);
  std::int64_t check(const Message& message, Reduction reduction, bool in_place);
  void warm_up(const Message& message, Reduction reduction, bool in_place);
  /// Timed iterations as one rank saw them.
  struct Iterations {
    double mean_us = 0;  ///< of an iteration within the burst
    std::vector<double> each_us;
    std::vector<std::int64_t> wrong;  ///< elements that each left wrong; empty: not checked
  };
  /// Iterations in a row, as fast as they come.
  Iterations burst(const Message& message, Reduction reduction, bool in_place);
  /// Iterations one by one, each with data of its own that is checked before the next begins. Filling, checking and
  /// waiting for all ranks to be ready are outside of what is timed.
  Iterations checked_one_by_one(const Message& message, Reduction reduction, bool in_place);

  const CollectivesArguments& a_;
  backend::RankContext& context_;
  RankMeeting& meeting_;
  CollectiveBuffers buffers_;
  std::uint64_t rounds_ = 0;
};

}  // namespace fsdpbench::app
