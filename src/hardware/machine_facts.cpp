#include "hardware/machine_facts.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <oneapi/dnnl/dnnl_version.h>
#include <sched.h>
#include <sys/utsname.h>
#include <toml++/toml.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "hardware/host_topology.h"
#include "hardware/nvml.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

void ask_topology(MachineFacts& facts) {
  const std::shared_ptr<const hardware::HostTopology> topology = hardware::HostTopology::of_this_host();
  if (topology == nullptr) return;
  hardware::HostTopology::Counts counts = topology->counts();
  facts.cpu = std::move(counts.model);
  facts.cores = counts.cores;
  facts.sockets = counts.packages;
  facts.numa_nodes = counts.numa_nodes;
  facts.l3_bytes = counts.l3_bytes;
}

/// One line of /proc/meminfo, in bytes.
std::int64_t memory_line(std::string_view wanted) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(wanted)) return std::atoll(line.c_str() + wanted.size()) * 1024;
  }
  return 0;
}

/// Tries on a thread of its own, so that this one keeps its policy.
std::string ask_realtime() {
  bool allowed = false;
  std::thread([&] {
    const sched_param parameters{.sched_priority = 1};
    allowed = sched_setscheduler(0, SCHED_FIFO, &parameters) == 0;
  }).join();
  return allowed ? "SCHED_FIFO is allowed: emulated links keep their deadlines also on busy cores."
                 : "SCHED_FIFO is not allowed for this user: emulated links may be some 0.1 ms late on busy cores.";
}

/// Driver ("release string") and GPUs by name. No driver, no GPUs: `driver` says so.
struct NvidiaFacts {
  std::string driver;
  std::vector<std::string> gpus;
};

/// The driver's own libraries, opened at run time with the few prototypes used here: the program neither needs CUDA to
/// be built nor to start.
struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

template <class Function>
Function* find(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

/// GPUs and driver release from NVML; false if it is not there.
bool ask_nvml(NvidiaFacts& facts) {
  std::string why_not;
  const std::shared_ptr<const hardware::Nvml> nvml = hardware::Nvml::open(why_not);
  if (nvml == nullptr) return false;
  facts.driver = nvml->driver_version();
  for (int i = 0; i < nvml->gpus(); ++i) {
    const hardware::NvmlGpu gpu(nvml, nvml->gpu(i));
    const std::string name = gpu.name();
    if (name.empty()) continue;
    const std::optional<std::int64_t> bytes = gpu.memory_bytes();
    facts.gpus.push_back(bytes ? fmt::format("{}, {}", name, format_bytes(*bytes)) : name);
  }
  return true;
}

/// The version of CUDA that the driver speaks.
std::string ask_driver() {
  const Library cuda(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!cuda) return {};
  auto* version = find<int(int*)>(cuda, "cuDriverGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) return {};
  return fmt::format("CUDA {}.{}", number / 1000, number % 1000 / 10);
}

NvidiaFacts nvidia_facts() {
  NvidiaFacts facts;
  const bool nvml = ask_nvml(facts);
  const std::string cuda = ask_driver();
  if (!nvml && cuda.empty()) {
    facts.driver = "There is no NVIDIA driver (neither libnvidia-ml.so.1 nor libcuda.so.1).";
  } else if (facts.driver.empty()) {
    facts.driver = cuda.empty() ? "There is an NVIDIA driver library, but it does not answer." : cuda;
  } else if (!cuda.empty()) {
    facts.driver += fmt::format(" ({})", cuda);
  }
  return facts;
}

std::string version(int major, int minor, int patch) { return fmt::format("{}.{}.{}", major, minor, patch); }

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts;
  ask_topology(facts);
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) == 0) facts.threads = CPU_COUNT(&usable);
  facts.memory_bytes = memory_line("MemTotal:");
  facts.available = available_memory();
  std::error_code error;
  const fs::space_info disk = fs::space(".", error);
  if (!error) facts.disk_free_bytes = static_cast<std::int64_t>(disk.available);
  utsname system{};
  if (uname(&system) == 0) facts.kernel = fmt::format("{} {} {}", system.sysname, system.release, system.machine);

  NvidiaFacts nvidia = nvidia_facts();
  facts.cuda_driver = std::move(nvidia.driver);
  facts.gpus = std::move(nvidia.gpus);
  facts.realtime = ask_realtime();

  const unsigned hwloc = hwloc_get_api_version();
  facts.libraries = {{"oneDNN", version(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH)},
                     {"hwloc", version(static_cast<int>(hwloc >> 16U), static_cast<int>(hwloc >> 8U & 0xFFU),
                                       static_cast<int>(hwloc & 0xFFU))},
                     {"fmt", version(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
                     {"toml++", version(TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH)},
                     {"nlohmann-json",
                      version(NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)}};
  return facts;
}

}  // namespace fsdpbench::app
