#include "foreign/watch/judge_gpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "account/gpu_steps.h"
#include "account/statistics.h"
#include "base/read_input.h"
#include "hardware/gpu_health.h"

namespace fsdpbench::watch {
namespace {

// dcgm-exporter asks its GPUs each 30 s by default; so what is the same for longer is a new look.
constexpr std::int64_t kLongestCollect_ns = 35'000'000'000;
constexpr std::size_t kMostGpus = std::size_t{1} << 16;
constexpr std::size_t kMostOfALabel = 120;
constexpr std::uint64_t kMostXid = 100'000;

struct Series {
  std::string_view name;
  std::vector<std::pair<std::string_view, std::string>> labels;
  double value = 0;

  /// The first of these labels that is there; nullptr: none is.
  const std::string* label(std::initializer_list<std::string_view> names) const {
    for (const std::string_view wanted : names) {
      for (const auto& [own, text] : labels) {
        if (own == wanted) return &text;
      }
    }
    return nullptr;
  }
  std::string text(std::initializer_list<std::string_view> names) const {
    const std::string* found = label(names);
    return found == nullptr ? std::string() : clean_text(*found, kMostOfALabel);
  }
};

void skip_blanks(std::string_view line, std::size_t& at) {
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
}

std::string_view word(std::string_view line, std::size_t& at) {
  const std::size_t begin = at;
  while (at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0 || line[at] == '_' ||
                              line[at] == ':' || line[at] == '-')) {
    ++at;
  }
  return line.substr(begin, at - begin);
}

/// One line, "name{label="value",…} value [time]"; none: it is another one, or has no value that is a number.
std::optional<Series> read_series(std::string_view line) {
  Series found;
  std::size_t at = 0;
  found.name = word(line, at);
  if (found.name.empty()) return std::nullopt;
  skip_blanks(line, at);
  if (at < line.size() && line[at] == '{') {
    ++at;
    for (;;) {
      skip_blanks(line, at);
      if (at < line.size() && line[at] == '}') break;
      const std::string_view name = word(line, at);
      skip_blanks(line, at);
      if (name.empty() || at + 1 >= line.size() || line[at] != '=' || line[at + 1] != '"') return std::nullopt;
      at += 2;
      std::string value;
      for (; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\' && at + 1 < line.size()) {
          ++at;
          value += line[at] == 'n' ? '\n' : line[at];
        } else {
          value += line[at];
        }
      }
      if (at >= line.size()) return std::nullopt;
      ++at;
      found.labels.emplace_back(name, std::move(value));
      skip_blanks(line, at);
      if (at < line.size() && line[at] == ',') ++at;
    }
    ++at;
  }
  skip_blanks(line, at);
  const std::string number(line.substr(at, line.find_first_of(" \t\r", at) - at));
  char* end = nullptr;
  found.value = std::strtod(number.c_str(), &end);
  if (number.empty() || end != number.c_str() + number.size() || !std::isfinite(found.value)) return std::nullopt;
  return found;
}

/// What one answer says of one GPU.
struct GpuAnswer {
  std::string host, index, uuid, model, bus;
  GpuLook look;
  std::map<std::uint64_t, double> xids;    ///< how often each was reported
  std::optional<std::uint64_t> last_xid;   ///< 0: none
  std::map<std::string, double> counters;  ///< that only matter once they grow
};

struct Counter {
  std::string_view series, means;
};
/// Time for which clocks were held down (etc/default-counters.csv of dcgm-exporter).
constexpr std::array kViolations{Counter{"DCGM_FI_DEV_POWER_VIOLATION", "power limit"},
                                 Counter{"DCGM_FI_DEV_THERMAL_VIOLATION", "thermal limit"},
                                 Counter{"DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "clocks of its partners"},
                                 Counter{"DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "board limit"},
                                 Counter{"DCGM_FI_DEV_RELIABILITY_VIOLATION", "reliability limit"}};
/// Values of the label `clock_event` (internal/pkg/collector/clock_events_collector.go).
constexpr std::array<std::pair<std::string_view, ClockLimit>, 9> kClockEvents{
    {{"gpu_idle", ClockLimit::idle},
     {"clocks_setting", ClockLimit::application_clocks},
     {"power_cap", ClockLimit::power_cap},
     {"hw_slowdown", ClockLimit::hardware_slowdown},
     {"sync_boost", ClockLimit::sync_boost},
     {"sw_thermal", ClockLimit::software_thermal},
     {"hw_thermal", ClockLimit::hardware_thermal},
     {"hw_power_brake", ClockLimit::power_brake},
     {"display_clocks", ClockLimit::display_clocks}}};

bool starts(std::string_view text, std::string_view with) { return text.starts_with(with); }
bool has(std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; }

std::optional<std::uint64_t> xid_in(const std::string& text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value == 0 || value > kMostXid) return std::nullopt;
  return value;
}

ClockLimits bits(double value) { return value >= 0 && value < 65536 ? static_cast<ClockLimits>(value) : 0; }

void add_dcgm(GpuAnswer& gpu, const Series& one) {
  if (one.name == "DCGM_FI_DEV_SM_CLOCK") {
    if (one.value > 0 && one.value < 1e5) gpu.look.clock_mhz = one.value;
  } else if (one.name == "DCGM_FI_DEV_GPU_UTIL") {
    if (one.value >= 0 && one.value <= 100) gpu.look.busy = one.value / 100;
  } else if (one.name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE") {
    if (one.value >= 0 && one.value <= 1 && !gpu.look.busy) gpu.look.busy = one.value;
  } else if (one.name == "DCGM_FI_DEV_CLOCKS_EVENT_REASONS" || one.name == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS") {
    gpu.look.limits |= bits(one.value);
  } else if (one.name == "DCGM_FI_DEV_XID_ERRORS") {
    if (one.value >= 0 && one.value <= static_cast<double>(kMostXid)) {
      gpu.last_xid = static_cast<std::uint64_t>(one.value);
    }
  } else if (one.name == "DCGM_EXP_XID_ERRORS_COUNT") {
    if (const auto xid = xid_in(one.text({"xid"}))) gpu.xids[*xid] = one.value;
  } else if (one.name == "DCGM_EXP_CLOCK_EVENTS_COUNT") {
    gpu.counters[fmt::format("event {}", one.text({"clock_event"}))] += one.value;
  } else if (starts(one.name, "DCGM_FI_DEV_NVLINK_") && has(one.name, "_ERROR_COUNT_")) {
    gpu.counters[fmt::format("{} {}", one.name, one.text({"nvlink"}))] = one.value;
  } else {
    for (const Counter& violation : kViolations) {
      if (one.name == violation.series) gpu.counters[std::string(one.name)] = one.value;
    }
  }
}

void add_nvidia_smi(GpuAnswer& gpu, const Series& one) {
  constexpr double kHz = 1e6;
  if (one.name == "nvidia_smi_clocks_current_sm_clock_hz") {
    if (one.value > 0 && one.value < 1e11) gpu.look.clock_mhz = one.value / kHz;
  } else if (one.name == "nvidia_smi_utilization_gpu_ratio") {
    if (one.value >= 0 && one.value <= 1) gpu.look.busy = one.value;
  } else if (one.name == "nvidia_smi_clocks_event_reasons_active" ||
             one.name == "nvidia_smi_clocks_throttle_reasons_active") {
    gpu.look.limits |= bits(one.value);
  } else if (one.name == "nvidia_smi_xid_errors_total") {
    if (const auto xid = xid_in(one.text({"xid"}))) gpu.xids[*xid] = one.value;
  }
}

bool is_link_total(std::string_view counter) { return has(counter, "_COUNT_TOTAL "); }

/// By how much the counters of the last look have grown; one that fell began anew.
void add_growth(const WatchedGpu& before, GpuAnswer& now) {
  const bool has_totals = std::ranges::any_of(now.counters, [](const auto& one) { return is_link_total(one.first); });
  for (const auto& [name, value] : now.counters) {
    const auto last = before.counters.find(name);
    if (starts(name, "event ")) {
      // The count is of the last minutes: it falls once the limit holds no more.
      if (!(value > 0) || (last != before.counters.end() && value < last->second)) continue;
      for (const auto& [event, limit] : kClockEvents) {
        if (std::string_view(name).substr(6) == event) now.look.limits |= bit(limit);
      }
      continue;
    }
    if (last == before.counters.end() || !(value > last->second)) continue;
    const double grown = value - last->second;
    if (starts(name, "DCGM_FI_DEV_NVLINK_")) {
      if (has_totals && !is_link_total(name)) continue;  // the same errors, by link
      (has(name, "_RECOVERY_") ? now.look.recoveries : now.look.link_errors) +=
          static_cast<std::int64_t>(std::min(grown, 1e15));
    }
    for (const Counter& violation : kViolations) {
      if (name == violation.series) now.look.held.emplace_back(violation.means);
    }
  }
}

void add_xids(WatchedGpu& gpu, const GpuAnswer& now, bool is_first, std::int64_t time_ns) {
  const auto report = [&](std::uint64_t xid, double times) {
    if (!(times > 0)) return;
    if (is_first) {
      gpu.earlier_xids.insert(xid);
      return;
    }
    WatchedXid& own = gpu.xids[xid];
    own.times += static_cast<std::int64_t>(std::min(times, 1e9));
    if (own.since_ns < 0) own.since_ns = time_ns;
  };
  const auto before = [&](const std::string& name) {
    const auto found = gpu.counters.find(name);
    return found == gpu.counters.end() ? 0.0 : found->second;
  };
  for (const auto& [xid, count] : now.xids) report(xid, count - before(fmt::format("xid {}", xid)));
  if (now.xids.empty() && now.last_xid && *now.last_xid != 0) {
    report(*now.last_xid, static_cast<double>(*now.last_xid) == before("last xid") ? 0 : 1);
  }
}

void add_answer(JobView& job, GpuAnswer now, const std::string& key, std::int64_t time_ns) {
  if (!job.gpus.contains(key) && job.gpus.size() >= kMostGpus) return;
  WatchedGpu& gpu = job.gpus[key];
  const bool is_first = gpu.looks.empty();
  gpu.host = now.host;
  gpu.name = now.index.empty() ? "GPU " + now.uuid : "GPU " + now.index;
  gpu.model = now.model;
  gpu.bus = now.bus;
  now.look.time_ns = time_ns;
  if (!is_first) add_growth(gpu, now);
  add_xids(gpu, now, is_first, time_ns);
  gpu.counters = std::move(now.counters);
  for (const auto& [xid, count] : now.xids) gpu.counters[fmt::format("xid {}", xid)] = count;
  if (now.last_xid) gpu.counters["last xid"] = static_cast<double>(*now.last_xid);
  gpu.looks.push_back(std::move(now.look));
  if (gpu.looks.size() > kMostGpuLooks) gpu.looks.pop_front();
}

}  // namespace

bool may_be_gpu_metrics(std::string_view beginning) {
  const auto begins_a_line = [&](std::string_view with) {
    return beginning.starts_with(with) || has(beginning, fmt::format("\n{}", with));
  };
  if (beginning.empty() || (beginning[0] != '#' && std::isalpha(static_cast<unsigned char>(beginning[0])) == 0)) {
    return false;
  }
  return begins_a_line("DCGM_FI_") || begins_a_line("DCGM_EXP_") || begins_a_line("nvidia_smi_");
}

std::string add_gpu_metrics(JobView& job, std::string_view text, const std::string& place, const std::string& host,
                            std::int64_t time_ns) {
  std::map<std::string, GpuAnswer> gpus;  // by UUID, or number
  std::size_t hash = 0;
  bool is_exporter = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const bool is_dcgm = starts(line, "DCGM_FI_") || starts(line, "DCGM_EXP_");
    if (!is_dcgm && !starts(line, "nvidia_smi_")) continue;
    is_exporter = true;
    if (has(line, "_last_collect_") || has(line, "scrapes_total")) continue;
    hash = hash * 31 + std::hash<std::string_view>()(line);
    const auto one = read_series(line);
    if (!one) continue;
    if (one->label({"GPU_I_ID", "gpu_instance_id", "cpu", "cpucore"}) != nullptr) continue;
    // dcgm-exporter: UUID, or uuid with the old namespace; gpu_uuid where the series is of a link.
    std::string uuid = one->text({"UUID", "uuid", "gpu_uuid"});
    if (uuid.starts_with("GPU-")) uuid.erase(0, 4);
    const std::string index = one->text({"gpu", "index"});
    const std::string key = uuid.empty() || (is_dcgm && !index.empty()) ? index : uuid;
    if (key.empty()) continue;
    GpuAnswer& gpu = gpus[key];
    if (!uuid.empty()) gpu.uuid = uuid;
    if (!index.empty()) gpu.index = index;
    const auto take = [&](std::string& into, std::initializer_list<std::string_view> names) {
      if (std::string found = one->text(names); !found.empty()) into = std::move(found);
    };
    take(gpu.bus, {"pci_bus_id"});
    take(gpu.model, {"modelName", "model_name"});
    if (one->name == "nvidia_smi_gpu_info") take(gpu.model, {"name"});
    take(gpu.host, {"hostname", "Hostname"});
    if (is_dcgm) {
      add_dcgm(gpu, *one);
    } else {
      add_nvidia_smi(gpu, *one);
    }
  }
  if (!is_exporter) return "has no series of dcgm-exporter or nvidia_gpu_exporter.";
  LastScrape& last = job.scrapes[place];
  if (time_ns <= last.time_ns) return {};
  if (hash == last.hash && time_ns - last.time_ns < kLongestCollect_ns && last.time_ns >= 0) return {};
  last = {hash, time_ns};
  // Some series of links have the UUID alone.
  for (auto at = gpus.begin(); at != gpus.end();) {
    const auto same = std::ranges::find_if(gpus, [&](const auto& other) {
      return at->second.index.empty() && !other.second.index.empty() && other.second.uuid == at->second.uuid;
    });
    if (same != gpus.end()) same->second.counters.merge(at->second.counters);
    at = same != gpus.end() ? gpus.erase(at) : std::next(at);
  }
  for (auto& [name, gpu] : gpus) {
    if (gpu.host.empty()) gpu.host = host;
    const std::string key = fmt::format("{}/{:0>4}/{}", gpu.host, gpu.index, gpu.uuid);
    add_answer(job, std::move(gpu), key, time_ns);
  }
  return {};
}
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
