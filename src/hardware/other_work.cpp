#include "hardware/other_work.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

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

}  // namespace fsdpbench::app
