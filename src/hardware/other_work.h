#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench::app {

/// Seconds of processors, since some time.
struct ProcessorTime {
  double machine_s = 0;  ///< that all processors of this machine were there: busy or idle
  double busy_s = 0;     ///< that somebody used them, a hypervisor among these
  double own_s = 0;      ///< that this process used them
};

/// Times from /proc/stat's first line and of this process. All 0 where there is no such file.
ProcessorTime processor_time();
/// Time used since then.
ProcessorTime since(const ProcessorTime& before);
/// `text`: of /proc/stat; `ticks_per_s`: sysconf(_SC_CLK_TCK). own_s stays 0. All 0 if it is no such text.
ProcessorTime machine_time(std::string_view text, double ticks_per_s);

/// Processor use that one process saw between two times.
struct ProcessorUse {
  std::string host;
  ProcessorTime time;  ///< differences
};
/// The largest share of a host's processors that others than these processes took, 0 to 1; 0 if nobody knows.
/// `one_process`: all of `uses` are of the same one.
double taken_by_others(const std::vector<ProcessorUse>& uses, bool one_process);

/// Others may take so much without a word about it.
inline constexpr double kQuietShare = 0.1;
/// "other programs used 37 % of the CPU"
std::string taken_text(double share);

/// Memory that new work of this process can have without swapping, and what sets that limit.
struct AvailableMemory {
  std::int64_t bytes = 0;  ///< 0 if the system does not say
  std::string limit;       ///< for people: "this machine has", "its control group (/system.slice/x) has"
};

/// The least of what the machine has available (MemAvailable of /proc/meminfo), what the control groups of this process
/// leave it (v2: memory.max - memory.current of its group and all above; v1: memory.limit_in_bytes -
/// memory.usage_in_bytes; pages of files that were not used lately count as free), and `ulimit -v` less what is mapped
/// already. `root`: where /proc and /sys are, "/" but in tests.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

/// Bytes that `ulimit -v` leaves of this process's address space; absent: there is no such limit.
std::optional<std::int64_t> address_space_left(const std::filesystem::path& root = "/");

/// Limits malloc to few arenas where the address space is limited among all threads: each reserves 64 MiB of it. To be
/// called before there are threads.
void spare_address_space();

}  // namespace fsdpbench::app
