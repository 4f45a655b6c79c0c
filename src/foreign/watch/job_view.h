#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hardware/gpu_health.h"

namespace fsdpbench::watch {

/// One collective as one rank saw it. Times are Unix time in nanoseconds; -1: not told.
struct Operation {
  std::int64_t sequence = 0;  ///< its number in its communicator, the same on all ranks
  std::string name{};         ///< "all_reduce", "ReduceScatter"
  std::string shape{};        ///< must be the same on all ranks; empty: not told, or it may differ
  std::int64_t bytes = -1;
  std::int64_t came_ns = -1;  ///< when the rank's host began it
  std::int64_t told_ns = -1;  ///< the latest time that its record has
  std::int64_t took_ns = -1;  ///< from this rank's coming to its end, by the clock of what ran it
  bool done = true;
  bool timed_out = false;  ///< the library gave it up
};

/// When something was heard of somebody, as Unix time in nanoseconds.
class Signs {
 public:
  void add(std::int64_t time_ns);
  std::int64_t newest_ns() const { return newest_ns_; }  ///< -1: nothing yet

  /// How long there were signs after `time_ns`, a gap counted as kMostGap_ns at most: where everybody pauses, as while
  /// a checkpoint is written, nobody falls silent.
  std::int64_t active_after_ns(std::int64_t time_ns) const;
  static constexpr std::int64_t kMostGap_ns = 3'000'000'000;

 private:
  std::deque<std::int64_t> times_;  // at least kApart_ns apart
  std::int64_t newest_ns_ = -1;
};

/// How many collectives a rank's host has handed over to NCCL, as its RAS tells it from time to time. That they have
/// ended nobody tells, and those of a CUDA graph do not count. Times are those of looks, in Unix time; -1: not so.
struct HandedOver {
  std::int64_t count = -1;      ///< all kinds; -1: RAS has no data of the rank
  std::int64_t moved_ns = -1;   ///< the first look with this count
  std::int64_t behind_ns = -1;  ///< since then it was, at each look, behind what half of the others had a look before
  int behind_looks = 0;
  std::int64_t lost_ns = -1;    ///< since then RAS does not reach its process
  std::int64_t ending_ns = -1;  ///< since then it finalizes, destroys or aborts the communicator
  bool starting = false;        ///< its communicator is not initialized yet
  bool dead = false;            ///< RAS considers its process dead
  std::int64_t error = 0;       ///< ncclResult_t; 0: none, 7: in progress
  std::string process;          ///< "process 4711 on 10.0.0.2, GPU 3"; empty: not told
};

/// One rank in one communicator.
struct Member {
  std::deque<Operation> operations{};  ///< by sequence; the newest ones
  Signs heard{};                       ///< as of when its source tells
  HandedOver handed{};                 ///< where the source is NCCL's RAS
};

enum class Lateness : std::uint8_t {
  none,      ///< nothing tells who came last
  arrivals,  ///< came_ns: whoever comes last is late
  waits,     ///< took_ns: whoever waits least came last
};

struct Communicator {
  std::string source;          ///< "flight recorder", "NCCL Inspector", "NCCL RAS"
  std::string name;            ///< as its source calls it
  std::vector<int> ranks;      ///< its members as far as its source tells; empty: it does not
  int size = 0;                ///< 0: not told
  int nodes = 0;               ///< 0: not told
  bool tells_pending = false;  ///< its source tells of operations that have not ended
  Lateness lateness = Lateness::none;
  bool tells_counts = false;  ///< its source tells how many collectives are handed over, and nothing else
  int looks = 0;              ///< of a source that tells counts
  std::map<int, Member> members;
};

/// A step as one rank timed it.
struct Step {
  std::int64_t number = 0;
  std::int64_t ended_ns = 0;
  double step_ms = 0;
  double waits_ms = -1;  ///< negative: not told
};

/// What is known of one process.
struct RankView {
  std::string host;
  bool ended = false;      ///< it said so itself, at the end of its program
  Signs heard;             ///< none: its sources tell no time of their own
  std::deque<Step> steps;  ///< the newest ones
};

/// A GPU as its exporter told it at one moment. What it did not tell is absent.
struct GpuLook {
  std::int64_t time_ns = 0;
  std::optional<double> clock_mhz;  ///< of its multiprocessors
  std::optional<double> busy;       ///< of the time, while some kernel ran; 0 to 1
  ClockLimits limits = 0;           ///< what held its clocks down, as bits
  std::vector<std::string> held{};  ///< and by counters of time that have grown since the look before: "thermal limit"
  std::int64_t recoveries = 0;      ///< of its NVLinks, since the look before
  std::int64_t link_errors = 0;     ///< replays and wrong checksums of its NVLinks, since the look before
};

/// An Xid that a GPU reported while it was watched.
struct WatchedXid {
  std::int64_t times = 0;
  std::int64_t since_ns = -1;  ///< the first look that told it
};

struct WatchedGpu {
  std::string host, name, model, bus;  ///< "node-2", "GPU 3", "NVIDIA H200", "00000000:83:00.0"; empty: not told
  std::deque<GpuLook> looks;           ///< the newest ones
  std::map<std::uint64_t, WatchedXid> xids;
  std::set<std::uint64_t> earlier_xids;    ///< that were there at the first look already
  std::map<std::string, double> counters;  ///< of its last look, by series
};

/// What an exporter answered last.
struct LastScrape {
  std::size_t hash = 0;
  std::int64_t time_ns = -1;
};

/// All that the sources have told so far, of whatever kind.
struct JobView {
  std::map<std::string, Communicator> communicators;  ///< by source and name
  std::map<int, RankView> ranks;                      ///< by global rank, where the source tells those
  int world = 0;                                      ///< ranks of the job; 0: not told
  std::int64_t counted_ns = -1;                       ///< the newest look of NCCL's RAS; -1: none
  std::map<std::string, WatchedGpu> gpus;             ///< by host, number and UUID
  std::map<std::string, LastScrape> scrapes;          ///< by endpoint or file
  std::vector<std::string> notes;                     ///< what could not be read, for people

  std::int64_t newest_ns() const;  ///< the latest time that any record has; -1: none has one
};

/// What a member keeps: enough for a window of the judge, not the job's history.
inline constexpr std::size_t kMostOperations = 2'000;
inline constexpr std::size_t kMostSteps = 2'000;
inline constexpr std::size_t kMostGpuLooks = 720;

/// Adds an operation, or replaces what was told of it before.
void add_operation(Member& member, Operation operation);
void add_step(RankView& rank, const Step& step);

}  // namespace fsdpbench::watch
