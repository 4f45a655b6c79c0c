#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "app/acceptance/kernel_log.h"
#include "app/acceptance/link_watch.h"
#include "app/acceptance/stage_clock.h"
#include "app/console/json_part.h"

namespace fsdpbench::app {

/// Watches the links and the kernel log of this host on a thread of its own, from its making on: a link that goes down
/// and comes up again between two looks from outside leaves its time here. May be used from any thread.
class HostWatch {
 public:
  struct Sources {
    std::filesystem::path sys;   ///< as host_links() has it
    std::filesystem::path kmsg;  ///< as kernel_log() has it
  };
  static constexpr double kEvery_s = 1;
  static constexpr std::size_t kMostEvents = 64;  ///< a link may flap all day

  /// Watches the files that host_links() and kernel_log() read by default, every kEvery_s.
  HostWatch();
  /// `every_s`: from look to look; 0: there is no thread, and whoever calls look() looks.
  HostWatch(const Sources& sources, double every_s);
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  /// What differs from the last look is kept as events. Reads files of /sys and new records of the log.
  void look();
  /// What was seen so far, in that order.
  std::vector<HostEvent> events() const;

 private:
  void watch();
  void keep(const std::string& part, std::string what, bool fails);
  void look_at_links();
  void look_at_log();

  const Sources sources_;
  const std::string host_;
  const double every_s_;
  const std::int64_t began_ns_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable ends_;
  bool ending_ = false;
  std::vector<HostLink> links_;
  KernelLogReader log_;
  std::int64_t last_record_ = -1;
  std::set<std::string> counted_;  // counters of links whose first error is an event already
  std::vector<HostEvent> events_;
  std::thread thread_;  // last: it uses all of the above
};

/// Between ranks.
nlohmann::json to_json(const std::vector<HostEvent>& events);
std::vector<HostEvent> host_events_from_json(const JsonPart& json);

/// Names the stage of each event; `watch_began_s`: when the watches began, by the clock of `stages`.
void name_stages(std::vector<HostEvent>& events, const std::vector<Stage>& stages, double watch_began_s);

/// The watch of an acceptance on this process's host, if it is this process that watches: the first call begins it, the
/// second one ends it. Returns what was seen in between.
std::vector<HostEvent> begin_or_end_watch(bool watches);
/// What it has seen so far, for people: what its host fails for, and lines of the kernel. For any thread.
std::vector<std::string> told_of_this_host();

}  // namespace fsdpbench::app
