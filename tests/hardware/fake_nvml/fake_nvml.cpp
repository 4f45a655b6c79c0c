#include "hardware/fake_nvml/fake_nvml.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>

#include "hardware/nvml.h"

namespace fake_nvml {
namespace {

using fsdpbench::hardware::Nvml;
using fsdpbench::hardware::NvmlEvent;
using fsdpbench::hardware::NvmlMemory;
using fsdpbench::hardware::NvmlPci;

constexpr int kInvalid = 2, kUninitialised = 1, kNotFound = 6;

struct Machine {
  std::mutex mutex;
  std::vector<Gpu> gpus;
  std::vector<int> clock_reads;
  std::map<std::string, int> failing;
  std::map<int, int> watched;  // set: GPU
  int next_set = 1;
  int users = 0;
};
Machine& machine() {
  static Machine* const kMachine = new Machine;  // monitors may outlive this library's own destructors
  return *kMachine;
}

/// "3.limits=64": the fields that a whole program's tests need.
void plan(Machine& m, const std::string& word) {
  const std::size_t dot = word.find('.');
  const std::size_t is = word.find('=');
  if (dot == std::string::npos || is == std::string::npos) return;
  const auto gpu = static_cast<std::size_t>(std::atoi(word.c_str()));
  if (gpu >= m.gpus.size()) return;
  const std::string field = word.substr(dot + 1, is - dot - 1);
  const unsigned long long value = std::strtoull(word.c_str() + is + 1, nullptr, 0);
  Gpu& g = m.gpus[gpu];
  if (field == "limits") g.limits = value;
  if (field == "sm_mhz") g.sm_mhz = static_cast<unsigned>(value);
  if (field == "pcie_width") g.pcie_width = static_cast<unsigned>(value);
  if (field == "xid") g.xids.push_back(value);
  if (field == "lost") g.lost = value != 0;
  if (field == "switch_links") g.links.assign(value, -1);
  if (field == "numa_node") g.numa_node = static_cast<int>(value);
}

/// A process that no test controls has the GPUs of FSDPBENCH_FAKE_NVML: "8 3.limits=64 …".
void plan_by_environment(Machine& m) {
  const char* const text = std::getenv("FSDPBENCH_FAKE_NVML");
  if (text == nullptr || !m.gpus.empty()) return;
  std::istringstream words(text);
  int count = 0;
  words >> count;
  m.gpus.resize(static_cast<std::size_t>(count));
  m.clock_reads.assign(m.gpus.size(), 0);
  for (std::string word; words >> word;) plan(m, word);
}

/// GPUs are told as their number plus one.
int number_of(Nvml::Handle handle) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1; }
Nvml::Handle handle_of(int number) { return reinterpret_cast<Nvml::Handle>(static_cast<std::uintptr_t>(number) + 1); }

int planned(Machine& m, const char* call) {
  if (m.users == 0) return kUninitialised;
  const auto found = m.failing.find(call);
  return found == m.failing.end() ? 0 : found->second;
}

/// Calls `tell` with the GPU, unless the call is to fail, or the GPU is lost or none.
template <class Tell>
int of_gpu(const char* call, Nvml::Handle handle, const Tell& tell) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (const int status = planned(m, call)) return status;
  const int number = number_of(handle);
  if (number < 0 || number >= static_cast<int>(m.gpus.size())) return kInvalid;
  Gpu& gpu = m.gpus[static_cast<std::size_t>(number)];
  if (gpu.lost) return Nvml::kGpuIsLost;
  return tell(m, gpu);
}

template <class T>
int number(const char* call, Nvml::Handle handle, unsigned* out, T Gpu::*field) {
  return of_gpu(call, handle, [&](Machine&, Gpu& gpu) {
    *out = gpu.*field;
    return 0;
  });
}

void write_place(int number, NvmlPci* out) {
  *out = {};
  out->bus = static_cast<unsigned>(number) + 1;
  std::snprintf(out->bus_id.data(), out->bus_id.size(), "00000000:%02X:00.0", out->bus);
}

}  // namespace

void set_gpus(int count) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  m.gpus.assign(static_cast<std::size_t>(count), Gpu{});
  m.clock_reads.assign(m.gpus.size(), 0);
  m.failing.clear();
}

void change(int gpu, const std::function<void(Gpu&)>& change) {
  const std::lock_guard lock(machine().mutex);
  change(machine().gpus.at(static_cast<std::size_t>(gpu)));
}

void fail(const std::string& call, int status) {
  const std::lock_guard lock(machine().mutex);
  machine().failing[call] = status;
}

int clock_reads(int gpu) {
  const std::lock_guard lock(machine().mutex);
  return machine().clock_reads.at(static_cast<std::size_t>(gpu));
}

int open_event_sets() {
  const std::lock_guard lock(machine().mutex);
  return static_cast<int>(machine().watched.size());
}

int users() {
  const std::lock_guard lock(machine().mutex);
  return machine().users;
}

}  // namespace fake_nvml

using namespace fake_nvml;

// NVML's interface: its names, and what a caller sees of its types.
extern "C" {

int nvmlInit_v2() {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  const auto found = m.failing.find(__func__);
  if (found != m.failing.end() && found->second != 0) return found->second;
  plan_by_environment(m);
  ++m.users;
  return 0;
}
int nvmlShutdown() {
  const std::lock_guard lock(machine().mutex);
  --machine().users;
  return 0;
}
const char* nvmlErrorString(int status) {
  switch (status) {
    case Nvml::kNotSupported: return "Not Supported";
    case Nvml::kGpuIsLost: return "GPU is lost";
    case kNotFound: return "Not Found";
    case 9: return "Driver Not Loaded";
    default: return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  const std::lock_guard lock(machine().mutex);
  std::snprintf(text, size, "580.95.05");
  return planned(machine(), __func__);
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  const std::lock_guard lock(machine().mutex);
  *count = static_cast<unsigned>(machine().gpus.size());
  return planned(machine(), __func__);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Nvml::Handle* handle) {
  const std::lock_guard lock(machine().mutex);
  if (index >= machine().gpus.size()) return kInvalid;
  *handle = handle_of(static_cast<int>(index));
  return planned(machine(), __func__);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, Nvml::Handle* handle) {
  const std::lock_guard lock(machine().mutex);
  unsigned domain = 0, bus = 0, device = 0;
  if (std::sscanf(place, "%x:%x:%x.0", &domain, &bus, &device) != 3) return kInvalid;
  if (domain != 0 || device != 0 || bus < 1 || bus > machine().gpus.size()) return kNotFound;
  *handle = handle_of(static_cast<int>(bus) - 1);
  return planned(machine(), __func__);
}
int nvmlDeviceGetName(Nvml::Handle handle, char* text, unsigned size) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu& gpu) {
    std::snprintf(text, size, "%s", gpu.name.c_str());
    return 0;
  });
}
int nvmlDeviceGetMemoryInfo(Nvml::Handle handle, NvmlMemory* memory) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu&) {
    *memory = {.total = 8ULL << 30, .free = 8ULL << 30, .used = 0};
    return 0;
  });
}
int nvmlDeviceGetPciInfo_v3(Nvml::Handle handle, NvmlPci* pci) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu&) {
    write_place(number_of(handle), pci);
    return 0;
  });
}
int nvmlDeviceGetClockInfo(Nvml::Handle handle, int which, unsigned* mhz) {
  return of_gpu(__func__, handle, [&](Machine& m, Gpu& gpu) {
    if (which != 1) return kInvalid;
    ++m.clock_reads[static_cast<std::size_t>(number_of(handle))];
    *mhz = gpu.sm_mhz;
    return 0;
  });
}
int nvmlDeviceGetMaxClockInfo(Nvml::Handle handle, int which, unsigned* mhz) {
  return which == 1 ? number(__func__, handle, mhz, &Gpu::most_sm_mhz) : kInvalid;
}
int nvmlDeviceGetPowerUsage(Nvml::Handle handle, unsigned* mw) { return number(__func__, handle, mw, &Gpu::power_mw); }
int nvmlDeviceGetEnforcedPowerLimit(Nvml::Handle handle, unsigned* mw) {
  return number(__func__, handle, mw, &Gpu::power_limit_mw);
}
int nvmlDeviceGetTemperature(Nvml::Handle handle, int sensor, unsigned* celsius) {
  return sensor == 0 ? number(__func__, handle, celsius, &Gpu::temperature_c) : kInvalid;
}
int nvmlDeviceGetCurrentClocksEventReasons(Nvml::Handle handle, unsigned long long* limits) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu& gpu) {
    *limits = gpu.limits;
    return 0;
  });
}
int nvmlDeviceGetCurrPcieLinkWidth(Nvml::Handle h, unsigned* out) { return number(__func__, h, out, &Gpu::pcie_width); }
int nvmlDeviceGetCurrPcieLinkGeneration(Nvml::Handle h, unsigned* out) {
  return number(__func__, h, out, &Gpu::pcie_generation);
}
int nvmlDeviceGetMaxPcieLinkWidth(Nvml::Handle h, unsigned* out) {
  return number(__func__, h, out, &Gpu::most_pcie_width);
}
int nvmlDeviceGetMaxPcieLinkGeneration(Nvml::Handle h, unsigned* out) {
  return number(__func__, h, out, &Gpu::most_pcie_generation);
}
int nvmlDeviceGetEccMode(Nvml::Handle handle, unsigned* current, unsigned* pending) {
  *pending = 0;
  return number(__func__, handle, current, &Gpu::ecc);
}
int nvmlDeviceGetTotalEccErrors(Nvml::Handle handle, int type, int counter, unsigned long long* count) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu& gpu) {
    if (counter != 0) return kInvalid;
    *count = type == 0 ? gpu.ecc_corrected : gpu.ecc_uncorrected;
    return 0;
  });
}
int nvmlDeviceGetNvLinkState(Nvml::Handle handle, unsigned link, unsigned* active) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu& gpu) {
    if (link >= 18) return kInvalid;  // as many as an H200 has
    *active = link < gpu.links.size() ? 1 : 0;
    return 0;
  });
}
int nvmlDeviceGetNvLinkErrorCounter(Nvml::Handle handle, unsigned link, int which, unsigned long long* count) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu& gpu) {
    if (link >= gpu.links.size()) return int{Nvml::kNotSupported};
    *count = which == 0 ? gpu.replays : which == 1 ? gpu.recoveries : which == 2 ? gpu.crc : 0;
    return 0;
  });
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Nvml::Handle handle, unsigned link, NvmlPci* pci) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu& gpu) {
    if (link >= gpu.links.size() || gpu.links[link] < 0) return int{Nvml::kNotSupported};
    write_place(gpu.links[link], pci);
    return 0;
  });
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Nvml::Handle handle, unsigned link, int* type) {
  return of_gpu(__func__, handle, [&](Machine&, Gpu& gpu) {
    if (link >= gpu.links.size()) return int{Nvml::kNotSupported};
    *type = gpu.links[link] < 0 ? 2 : 0;
    return 0;
  });
}
int nvmlDeviceGetTopologyCommonAncestor(Nvml::Handle handle, Nvml::Handle other, int* level) {
  return of_gpu(__func__, handle, [&](Machine& m, Gpu& gpu) {
    const Gpu& far = m.gpus.at(static_cast<std::size_t>(number_of(other)));
    *level = gpu.numa_node == far.numa_node ? 30 : 50;
    return 0;
  });
}
int nvmlEventSetCreate(Nvml::Handle* set) {
  const std::lock_guard lock(machine().mutex);
  *set = handle_of(machine().next_set++);
  machine().watched[number_of(*set)] = -1;
  return planned(machine(), __func__);
}
int nvmlDeviceRegisterEvents(Nvml::Handle handle, unsigned long long types, Nvml::Handle set) {
  return of_gpu(__func__, handle, [&](Machine& m, Gpu&) {
    if (types != 8) return int{Nvml::kNotSupported};
    m.watched[number_of(set)] = number_of(handle);
    return 0;
  });
}
int nvmlEventSetWait_v2(Nvml::Handle set, NvmlEvent* event, unsigned) {
  Machine& m = machine();
  const std::lock_guard lock(m.mutex);
  if (const int status = planned(m, __func__)) return status;
  const auto watched = m.watched.find(number_of(set));
  if (watched == m.watched.end() || watched->second < 0) return kInvalid;
  Gpu& gpu = m.gpus.at(static_cast<std::size_t>(watched->second));
  if (gpu.lost) return Nvml::kGpuIsLost;
  if (gpu.xids.empty()) return Nvml::kTimeout;
  *event = {.device = handle_of(watched->second),
            .type = 8,
            .data = gpu.xids.front(),
            .gpu_instance = 0,
            .compute_instance = 0};
  gpu.xids.erase(gpu.xids.begin());
  return 0;
}
int nvmlEventSetFree(Nvml::Handle set) {
  const std::lock_guard lock(machine().mutex);
  machine().watched.erase(number_of(set));
  return 0;
}

}  // extern "C"
