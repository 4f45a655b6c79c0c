#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fsdpbench::app {

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

/// What `ulimit -v` leaves of this process's address space, in bytes; absent: there is no such limit.
std::optional<std::int64_t> address_space_left(const std::filesystem::path& root = "/");

/// Where the address space is limited, malloc shares few arenas among all threads: each reserves 64 MiB of it. To be
/// called before there are threads.
void spare_address_space();

}  // namespace fsdpbench::app
