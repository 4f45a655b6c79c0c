#include "foreign/watch/judge_gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "account/gpu_steps.h"
#include "account/statistics.h"
#include "hardware/xid.h"

namespace fsdpbench::watch {
namespace {

constexpr std::int64_t kFresh_ns = 60'000'000'000;
constexpr std::int64_t kLinkWindow_ns = 240'000'000'000;
constexpr std::size_t kLeastPeers = 3;
constexpr std::size_t kMostGpuNotes = 8;

double s_of(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

bool is_busy(const GpuLook& look) { return look.busy && *look.busy >= kBusy; }
bool is_idle(const GpuLook& look) { return look.busy && *look.busy <= kIdle; }

std::string gpu_words(const WatchedGpu& gpu) {
  return fmt::format("{}{} of {}", gpu.name, gpu.bus.empty() ? "" : " (" + gpu.bus + ")", gpu.host);
}

/// The newest looks that all are so.
struct Run {
  int looks = 0;
  std::int64_t first_ns = 0, last_ns = 0;
  bool is_long(std::int64_t least_ns) const { return looks >= kLeastGpuLooks && last_ns - first_ns >= least_ns; }
};

template <typename Is>
Run newest_run(const WatchedGpu& gpu, const Is& is) {
  Run run;
  for (auto look = gpu.looks.rbegin(); look != gpu.looks.rend() && is(*look); ++look) {
    if (run.looks++ == 0) run.last_ns = look->time_ns;
    run.first_ns = look->time_ns;
  }
  return run;
}

class GpuJudge {
 public:
  GpuJudge(const JobView& job, const JudgeOptions& options) : options_(options) {
    for (const auto& [key, gpu] : job.gpus) {
      if (!gpu.looks.empty()) newest_ns_ = std::max(newest_ns_, gpu.looks.back().time_ns);
    }
    for (const auto& [key, gpu] : job.gpus) {
      if (gpu.looks.empty()) continue;
      all_.push_back(&gpu);
      if (newest_ns_ - gpu.looks.back().time_ns < kFresh_ns) fresh_.push_back(&gpu);
    }
  }

  GpuFindings judge() {
    if (all_.empty()) return {};
    for (const WatchedGpu* gpu : all_) find_xids(*gpu);
    find_throttled();
    find_idle();
    for (const WatchedGpu* gpu : fresh_) find_link_errors(*gpu);
    std::size_t looks = 0;
    for (const WatchedGpu* gpu : all_) looks = std::max(looks, gpu->looks.size());
    found_.unknown =
        fmt::format("It is not known who comes last: exporters of GPU metrics see GPUs, not ranks{}.",
                    looks < std::size_t{kLeastGpuLooks} ? ", and further looks tell whether a GPU is throttled or idle"
                                                        : "; no GPU has trouble");
    return std::move(found_);
  }

 private:
  void accuse(const WatchedGpu& gpu, std::string trouble, std::int64_t since_ns, std::string sentence) {
    found_.all.push_back({.verdict = Verdict::gpu,
                          .since_ns = since_ns,
                          .host = gpu.host,
                          .gpu = gpu.name,
                          .trouble = std::move(trouble),
                          .sentence = std::move(sentence)});
  }
  void note(std::string sentence) {
    if (found_.notes.size() < kMostGpuNotes) found_.notes.push_back(std::move(sentence));
  }

  void find_xids(const WatchedGpu& gpu) {
    for (const auto& [xid, reported] : gpu.xids) {
      accuse(gpu, fmt::format("Xid {}", xid), reported.since_ns,
             fmt::format("{} reported {} since the watch began.{}", gpu_words(gpu), xid_text(xid, reported.times),
                         is_xid_of_programs(xid) ? " As a rule a program's error causes it." : ""));
    }
    for (const std::uint64_t xid : gpu.earlier_xids) {
      note(fmt::format("{} reported {} before the watch began.", gpu_words(gpu), xid_text(xid)));
    }
  }

  /// The middle of its clock at the busy looks of the last minute; negative: there was none.
  double busy_clock(const WatchedGpu& gpu) const {
    std::vector<double> clocks;
    for (auto look = gpu.looks.rbegin(); look != gpu.looks.rend() && newest_ns_ - look->time_ns < kFresh_ns; ++look) {
      if (is_busy(*look) && look->clock_mhz) clocks.push_back(*look->clock_mhz);
    }
    return clocks.empty() ? -1 : account::median(std::move(clocks));
  }

  static std::string reason(const WatchedGpu& gpu, std::int64_t since_ns) {
    ClockLimits limits = 0;
    std::set<std::string> words;
    for (const GpuLook& look : gpu.looks) {
      if (look.time_ns < since_ns) continue;
      limits |= look.limits;
      words.insert(look.held.begin(), look.held.end());
    }
    if (std::string text = account::limits_text(limits & ~bit(ClockLimit::idle)); !text.empty()) words.insert(text);
    return words.empty() ? "The exporter tells no reason." : fmt::format("The reason: {}.", fmt::join(words, ", "));
  }

  void find_throttled() {
    std::map<std::string, std::vector<std::pair<const WatchedGpu*, double>>> models;
    for (const WatchedGpu* gpu : fresh_) {
      if (const double clock = busy_clock(*gpu); clock > 0) models[gpu->model].emplace_back(gpu, clock);
    }
    for (const auto& [model, gpus] : models) {
      if (gpus.size() <= kLeastPeers) continue;
      for (const auto& [gpu, clock] : gpus) {
        std::vector<double> peers;
        for (const auto& [other, own] : gpus) {
          if (other != gpu) peers.push_back(own);
        }
        const double usual = account::median(std::move(peers));
        const Run run = newest_run(*gpu, [usual = usual](const GpuLook& look) {
          return is_busy(look) && look.clock_mhz && *look.clock_mhz < kLeastClock * usual;
        });
        if (run.looks == 0) continue;
        if (!run.is_long(kLeastGpuSpan_ns)) {
          note(
              fmt::format("{} is busy at {:.0f} MHz, where its peers are at {:.0f}; further looks tell whether that "
                          "lasts.",
                          gpu_words(*gpu), *gpu->looks.back().clock_mhz, usual));
          continue;
        }
        double most = 0;
        for (const GpuLook& look : gpu->looks) {
          if (look.time_ns >= run.first_ns) most = std::max(most, *look.clock_mhz);
        }
        accuse(*gpu, "throttled", run.first_ns,
               fmt::format("{} is throttled: it is busy, but at each of {} looks of {:.0f} s its clock was at most "
                           "{:.0f} MHz, {:.0f} % of the {:.0f} MHz of {} peers. {}",
                           gpu_words(*gpu), run.looks, s_of(run.last_ns - run.first_ns), most, 100 * most / usual,
                           usual, gpus.size() - 1, reason(*gpu, run.first_ns)));
      }
    }
  }

  static bool has_worked(const WatchedGpu& gpu) { return std::ranges::count_if(gpu.looks, is_busy) >= kLeastGpuLooks; }

  void find_idle() {
    std::vector<const WatchedGpu*> working;
    for (const WatchedGpu* gpu : fresh_) {
      if (has_worked(*gpu)) working.push_back(gpu);
    }
    for (const WatchedGpu* gpu : working) {
      const Run run = newest_run(*gpu, is_idle);
      if (!run.is_long(options_.hang_ns)) continue;
      std::size_t others = 0, busy = 0;
      for (const WatchedGpu* other : working) {
        if (other == gpu) continue;
        ++others;
        const Run own = newest_run(*other, is_busy);
        busy += own.is_long(options_.hang_ns) ? 1 : 0;
      }
      if (busy == 0 || 4 * busy < 3 * others) continue;
      accuse(*gpu, "idle", run.first_ns,
             fmt::format("{} has been idle for {:.0f} s, while {} of {} others are busy, as it was before: its process "
                         "is late, hangs or has ended.",
                         gpu_words(*gpu), s_of(run.last_ns - run.first_ns), busy, others));
    }
  }

  void find_link_errors(const WatchedGpu& gpu) {
    std::int64_t recoveries = 0, errors = 0, since_ns = -1;
    for (const GpuLook& look : gpu.looks) {
      if (newest_ns_ - look.time_ns > kLinkWindow_ns || look.recoveries + look.link_errors == 0) continue;
      recoveries += look.recoveries;
      errors += look.link_errors;
      if (since_ns < 0) since_ns = look.time_ns;
    }
    if (since_ns < 0) return;
    const std::string counted =
        fmt::format("NVLinks of {} counted {} replays or wrong checksums and {} recoveries within {:.0f} s",
                    gpu_words(gpu), errors, recoveries, s_of(newest_ns_ - since_ns));
    const Run run = newest_run(gpu, [](const GpuLook& look) { return look.link_errors > 0; });
    if (recoveries == 0 && !run.is_long(kLeastGpuSpan_ns)) return note(counted + ", as healthy ones do, too.");
    accuse(gpu, "NVLink errors", since_ns,
           fmt::format("{}{}: a cable, a switch or the GPU loses bytes, which are sent again.", counted,
                       run.is_long(kLeastGpuSpan_ns) ? fmt::format(", more at each of {} looks", run.looks) : ""));
  }

  const JudgeOptions& options_;
  std::int64_t newest_ns_ = -1;
  std::vector<const WatchedGpu*> all_, fresh_;
  GpuFindings found_;
};

}  // namespace

GpuFindings judge_gpus(const JobView& job, const JudgeOptions& options) { return GpuJudge(job, options).judge(); }

bool is_same_host(std::string_view a, std::string_view b) {
  const auto is_numeric = [](std::string_view name) {
    return name.find(':') != std::string_view::npos || name.find_first_not_of("0123456789.") == std::string_view::npos;
  };
  if (a.empty() || b.empty()) return false;
  if (is_numeric(a) || is_numeric(b)) return a == b;
  return a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
}

}  // namespace fsdpbench::watch
