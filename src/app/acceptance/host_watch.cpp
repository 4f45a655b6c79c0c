#include "app/acceptance/host_watch.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "launch/host_identity.h"

namespace fsdpbench::app {
namespace {

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

/// From an acceptance's first look at hosts to its last one; null: another process watches this host. The thread of the
/// time limit may ask while the one that measures ends it.
struct WatchOfThisHost {
  std::mutex mutex;
  std::shared_ptr<HostWatch> watch;
};
WatchOfThisHost& watch_of_this_host() {
  static WatchOfThisHost of_this_process;
  return of_this_process;
}

}  // namespace

HostWatch::HostWatch() : HostWatch({sys_folder(), kmsg_file()}, kEvery_s) {}

HostWatch::HostWatch(const Sources& sources, double every_s)
    : sources_(sources),
      host_(launch::node_name()),
      every_s_(every_s),
      began_ns_(now_ns()),
      links_(host_links(sources.sys)),
      log_(sources.kmsg) {
  last_record_ = log_.read().last;
  if (every_s_ > 0) thread_ = std::thread([this] { watch(); });
}

HostWatch::~HostWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HostWatch::watch() {
  pthread_setname_np(pthread_self(), "host-watch");
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::duration<double>(every_s_), [this] { return ending_; })) {
    look_at_links();
    look_at_log();
  }
}

void HostWatch::look() {
  const std::lock_guard lock(mutex_);
  look_at_links();
  look_at_log();
}

std::vector<HostEvent> HostWatch::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void HostWatch::keep(const std::string& part, std::string what, bool fails) {
  if (events_.size() >= kMostEvents) return;
  events_.push_back({.at_s = static_cast<double>(now_ns() - began_ns_) * 1e-9,
                     .time = utc_now(),
                     .host = host_,
                     .part = part,
                     .what = std::move(what),
                     .fails = fails,
                     .stage = {}});
}

void HostWatch::look_at_links() {
  std::vector<HostLink> now = host_links(sources_.sys);
  for (const HostLink& was : links_) {
    const auto found = std::ranges::find(now, was.name, &HostLink::name);
    if (found == now.end()) {
      keep(was.name, "is gone", true);
      continue;
    }
    if (went_down(was, *found)) {
      keep(was.name, found->up ? "went down and came up again" : "went down", true);
    } else if (!was.up && found->up) {
      keep(was.name, "came up", false);
    }
    for (const auto& [name, value] : found->errors) {
      const auto same = std::ranges::find(was.errors, name, &std::pair<std::string, std::int64_t>::first);
      if (same == was.errors.end() || value <= same->second) continue;
      if (counted_.insert(was.name + ' ' + name).second) keep(was.name, name, false);
    }
  }
  links_ = std::move(now);
}

void HostWatch::look_at_log() {
  const KernelLog& log = log_.read();
  for (const auto& [number, line] : log.lines) {
    if (number > last_record_) keep(kKernelLogRule, line, kernel_trouble(line) == KernelTrouble::fails);
  }
  last_record_ = log.last;
}

nlohmann::json to_json(const std::vector<HostEvent>& events) {
  nlohmann::json all = nlohmann::json::array();
  for (const HostEvent& event : events) {
    all.push_back({{"at_s", event.at_s},
                   {"time", event.time},
                   {"host", event.host},
                   {"part", event.part},
                   {"what", event.what},
                   {"fails", event.fails}});
  }
  return all;
}

std::vector<HostEvent> host_events_from_json(const JsonPart& json) {
  std::vector<HostEvent> events;
  for (const JsonPart& one : json.list()) {
    events.push_back({.at_s = one.at("at_s").number(),
                      .time = one.at("time").text(),
                      .host = one.at("host").text(),
                      .part = one.at("part").text(),
                      .what = one.at("what").text(),
                      .fails = one.at("fails").flag(),
                      .stage = {}});
  }
  return events;
}

void name_stages(std::vector<HostEvent>& events, const std::vector<Stage>& stages, double watch_began_s) {
  for (HostEvent& event : events) {
    for (const Stage& stage : stages) {
      if (!stage.skipped && stage.began_s <= watch_began_s + event.at_s) event.stage = stage.name;
    }
  }
}

std::vector<HostEvent> begin_or_end_watch(bool watches) {
  WatchOfThisHost& here = watch_of_this_host();
  const std::lock_guard lock(here.mutex);
  if (here.watch == nullptr) {
    if (watches) here.watch = std::make_shared<HostWatch>();
    return {};
  }
  here.watch->look();
  std::vector<HostEvent> events = here.watch->events();
  here.watch.reset();
  return events;
}

std::vector<std::string> told_of_this_host() {
  WatchOfThisHost& here = watch_of_this_host();
  const std::lock_guard lock(here.mutex);
  if (here.watch == nullptr) return {};
  here.watch->look();
  std::vector<std::string> sentences;
  const std::vector<HostEvent> events = here.watch->events();
  for (const HostEvent& event : events) {
    if (event.part != kKernelLogRule && !event.fails) continue;
    sentences.push_back((event.part == kKernelLogRule
                             ? fmt::format("the kernel of {} wrote: {}", event.host, event.what)
                             : fmt::format("{} of {} {}", event.part, event.host, event.what)) +
                        when_seen(events, event.host, event.part, event.what));
  }
  return sentences;
}

}  // namespace fsdpbench::app
