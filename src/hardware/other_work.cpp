#include "hardware/other_work.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

namespace fsdpbench::app {

ProcessorTime machine_time(std::string_view text, double ticks_per_s) {
  // cpu user nice system idle iowait irq softirq steal (proc(5)); a guest's time is in user's.
  constexpr std::size_t kIdle = 3, kWaits = 4, kKnown = 8;
  std::istringstream line{std::string(text.substr(0, text.find('\n')))};
  std::string name;
  line >> name;
  ProcessorTime time;
  if (name != "cpu") return time;
  double ticks = 0;
  for (std::size_t i = 0; i < kKnown && line >> ticks; ++i) {
    time.machine_s += ticks / ticks_per_s;
    if (i != kIdle && i != kWaits) time.busy_s += ticks / ticks_per_s;
  }
  return time;
}

ProcessorTime processor_time() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  ProcessorTime time = machine_time(line, static_cast<double>(sysconf(_SC_CLK_TCK)));
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    time.own_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return time;
}

ProcessorTime since(const ProcessorTime& before) {
  const ProcessorTime now = processor_time();
  return {now.machine_s - before.machine_s, now.busy_s - before.busy_s, now.own_s - before.own_s};
}

double taken_by_others(const std::vector<ProcessorUse>& uses, bool one_process) {
  std::map<std::string, ProcessorTime> hosts;
  for (const ProcessorUse& use : uses) {
    ProcessorTime& host = hosts[use.host];
    host.machine_s = std::max(host.machine_s, use.time.machine_s);
    host.busy_s = std::max(host.busy_s, use.time.busy_s);
    host.own_s = one_process ? use.time.own_s : host.own_s + use.time.own_s;
  }
  double most = 0;
  for (const auto& [name, time] : hosts) {
    if (time.machine_s > 0) most = std::max(most, (time.busy_s - time.own_s) / time.machine_s);
  }
  return std::min(most, 1.0);
}

std::string taken_text(double share) { return fmt::format("other programs used {:.0f} % of the CPU", 100 * share); }
namespace {

namespace fs = std::filesystem;

/// The first word of a file as a number; nothing for "max" and what else is none.
std::optional<std::int64_t> only_number_in(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (word.empty() || error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

/// The number behind `name` in a file of "name number" lines.
std::optional<std::int64_t> number_of(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    std::int64_t value = 0;
    if (words >> first >> value && first == name) return value;
  }
  return std::nullopt;
}

/// Bytes left in one control group by its files.
std::optional<std::int64_t> left_in(const fs::path& group, const char* limit, const char* usage,
                                    const char* reclaimable) {
  const std::optional<std::int64_t> most = only_number_in(group / limit);
  const std::optional<std::int64_t> used = only_number_in(group / usage);
  if (!most || !used) return std::nullopt;
  const std::int64_t cached = number_of(group / "memory.stat", reclaimable).value_or(0);
  return std::max<std::int64_t>(0, *most - std::max<std::int64_t>(0, *used - cached));
}

void take_less(AvailableMemory& least, std::optional<std::int64_t> bytes, const std::string& limit) {
  if (bytes && *bytes < least.bytes) least = {*bytes, limit};
}

/// A group and all above it: each limits what is in it. In a container the names may be those of the host, whose groups
/// are not to be seen there; then the container's own is where the hierarchy begins.
void ask_groups(AvailableMemory& least, const fs::path& hierarchy, const std::string& name, const char* limit,
                const char* usage, const char* reclaimable) {
  for (fs::path group = name;; group = group.parent_path()) {
    take_less(least, left_in(hierarchy / group.relative_path(), limit, usage, reclaimable),
              fmt::format("its control group ({}) has", group.string()));
    if (!group.has_relative_path()) return;
  }
}

void ask_control_groups(AvailableMemory& least, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" (v2), "5:cpu,memory:/path" (v1)
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string name = line.substr(second + 1);
    if (controllers == ",,") {
      for (const char* mount : {"sys/fs/cgroup", "sys/fs/cgroup/unified"}) {
        ask_groups(least, root / mount, name, "memory.max", "memory.current", "inactive_file");
      }
    } else if (controllers.find(",memory,") != std::string::npos) {
      ask_groups(least, root / "sys/fs/cgroup/memory", name, "memory.limit_in_bytes", "memory.usage_in_bytes",
                 "total_inactive_file");
    }
  }
}

/// `ulimit -v`; absent: none.
std::optional<std::int64_t> most_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

}  // namespace

AvailableMemory available_memory(const fs::path& root) {
  AvailableMemory least{number_of(root / "proc/meminfo", "MemAvailable:").value_or(0) * 1024, "this machine has"};
  if (least.bytes == 0) return least;
  ask_control_groups(least, root);
  if (const auto left = address_space_left(root)) take_less(least, *left, "its address space (ulimit -v) has");
  return least;
}

std::optional<std::int64_t> address_space_left(const fs::path& root) {
  const std::optional<std::int64_t> most = most_address_space();
  if (!most) return std::nullopt;
  const std::int64_t mapped = only_number_in(root / "proc/self/statm").value_or(0) * sysconf(_SC_PAGESIZE);
  return std::max<std::int64_t>(0, *most - mapped);
}

void spare_address_space() {
  if (most_address_space()) mallopt(M_ARENA_MAX, 1);
}

}  // namespace fsdpbench::app
