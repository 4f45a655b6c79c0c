#include "hardware/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace fsdpbench::hardware {
namespace {

/// `call` is set to what the library has under the first of the names that it knows.
template <class Function>
void find(void* library, Function*& call, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    call = reinterpret_cast<Function*>(dlsym(library, name));
    if (call != nullptr) return;
  }
}

void find_all(void* library, NvmlCalls& c) {
  find(library, c.init, {"nvmlInit_v2"});
  find(library, c.shutdown, {"nvmlShutdown"});
  find(library, c.error_string, {"nvmlErrorString"});
  find(library, c.driver_version, {"nvmlSystemGetDriverVersion"});
  find(library, c.count, {"nvmlDeviceGetCount_v2"});
  find(library, c.by_index, {"nvmlDeviceGetHandleByIndex_v2"});
  find(library, c.by_place, {"nvmlDeviceGetHandleByPciBusId_v2"});
  find(library, c.name, {"nvmlDeviceGetName"});
  find(library, c.memory, {"nvmlDeviceGetMemoryInfo"});
  find(library, c.pci, {"nvmlDeviceGetPciInfo_v3"});
  find(library, c.clock, {"nvmlDeviceGetClockInfo"});
  find(library, c.max_clock, {"nvmlDeviceGetMaxClockInfo"});
  find(library, c.power, {"nvmlDeviceGetPowerUsage"});
  find(library, c.power_limit, {"nvmlDeviceGetEnforcedPowerLimit"});
  find(library, c.temperature, {"nvmlDeviceGetTemperature"});
  // The second name is what drivers before 535 call it.
  find(library, c.clock_limits,
       {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  find(library, c.pcie_width, {"nvmlDeviceGetCurrPcieLinkWidth"});
  find(library, c.pcie_generation, {"nvmlDeviceGetCurrPcieLinkGeneration"});
  find(library, c.max_pcie_width, {"nvmlDeviceGetMaxPcieLinkWidth"});
  find(library, c.max_pcie_generation, {"nvmlDeviceGetMaxPcieLinkGeneration"});
  find(library, c.ecc_mode, {"nvmlDeviceGetEccMode"});
  find(library, c.ecc_errors, {"nvmlDeviceGetTotalEccErrors"});
  find(library, c.link_state, {"nvmlDeviceGetNvLinkState"});
  find(library, c.link_errors, {"nvmlDeviceGetNvLinkErrorCounter"});
  find(library, c.link_far_end, {"nvmlDeviceGetNvLinkRemotePciInfo_v2"});
  find(library, c.link_far_type, {"nvmlDeviceGetNvLinkRemoteDeviceType"});
  find(library, c.common_ancestor, {"nvmlDeviceGetTopologyCommonAncestor"});
  find(library, c.make_event_set, {"nvmlEventSetCreate"});
  find(library, c.register_events, {"nvmlDeviceRegisterEvents"});
  find(library, c.wait_for_event, {"nvmlEventSetWait_v2"});
  find(library, c.free_event_set, {"nvmlEventSetFree"});
}

template <class Function, class... Arguments>
int ask(Function* call, Arguments... arguments) {
  return call == nullptr ? int{Nvml::kFunctionNotFound} : call(arguments...);
}

/// NVML writes "00000000:0F:00.0"; CUDA and the kernel "0000:0f:00.0".
std::string place_text(const NvmlPci& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

std::string first_text(const char* text, std::size_t most) {
  return std::string(text, std::find(text, text + most, '\0'));
}

/// Adds what one link counted; a sum of which nothing was told stays absent.
void add(std::optional<std::uint64_t>& sum, unsigned long long count) { sum = sum.value_or(0) + count; }

}  // namespace

std::shared_ptr<const Nvml> Nvml::open(std::string& why_not, const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why_not = fmt::format(
        "Clocks, power and errors of GPUs are not known: NVIDIA's management library cannot be loaded ({}).",
        dlerror());
    return nullptr;
  }
  std::shared_ptr<Nvml> nvml(new Nvml);
  nvml->library_ = std::shared_ptr<void>(library, [](void* it) { dlclose(it); });
  find_all(library, nvml->calls_);
  const int status = ask(nvml->calls_.init);
  if (status != kSuccess) {
    why_not =
        fmt::format("Clocks, power and errors of GPUs are not known: NVIDIA's management library does not start ({}).",
                    nvml->error_text(status));
    return nullptr;
  }
  nvml->initialised_ = true;
  return nvml;
}

Nvml::~Nvml() {
  if (initialised_) ask(calls_.shutdown);
}

std::string Nvml::error_text(int status) const {
  const char* const text = calls_.error_string == nullptr ? nullptr : calls_.error_string(status);
  return text == nullptr ? fmt::format("NVML status {}", status) : text;
}

std::string Nvml::driver_version() const {
  std::array<char, 96> text{};
  const int status = ask(calls_.driver_version, text.data(), static_cast<unsigned>(text.size()));
  return status == kSuccess ? first_text(text.data(), text.size()) : std::string();
}

int Nvml::gpus() const {
  unsigned count = 0;
  return ask(calls_.count, &count) == kSuccess ? static_cast<int>(count) : 0;
}

Nvml::Handle Nvml::gpu(int index) const {
  Handle handle = nullptr;
  return ask(calls_.by_index, static_cast<unsigned>(index), &handle) == kSuccess ? handle : nullptr;
}

Nvml::Handle Nvml::gpu_at(const std::string& place, std::string& why_not) const {
  Handle handle = nullptr;
  const int status = ask(calls_.by_place, place.c_str(), &handle);
  if (status == kSuccess && handle != nullptr) return handle;
  why_not = fmt::format(
      "Clocks, power and errors of the GPU at {} are not known: NVIDIA's management library does not "
      "give it ({}).",
      place, error_text(status));
  return nullptr;
}

bool NvmlGpu::told(int status) const {
  if (status == Nvml::kGpuIsLost) *lost_ = true;
  return status == Nvml::kSuccess;
}

std::optional<std::int32_t> NvmlGpu::number(int (*call)(Nvml::Handle, unsigned*)) const {
  unsigned value = 0;
  if (!told(ask(call, handle_, &value))) return std::nullopt;
  return static_cast<std::int32_t>(value);
}

std::string NvmlGpu::name() const {
  std::array<char, 96> text{};
  const int status = ask(nvml_->calls().name, handle_, text.data(), static_cast<unsigned>(text.size()));
  return told(status) ? first_text(text.data(), text.size()) : std::string();
}

std::optional<std::int64_t> NvmlGpu::memory_bytes() const {
  NvmlMemory memory{};
  if (!told(ask(nvml_->calls().memory, handle_, &memory))) return std::nullopt;
  return static_cast<std::int64_t>(memory.total);
}

std::string NvmlGpu::place() const {
  NvmlPci pci{};
  return told(ask(nvml_->calls().pci, handle_, &pci)) ? place_text(pci) : std::string();
}

GpuLimits NvmlGpu::limits() const {
  const NvmlCalls& c = nvml_->calls();
  GpuLimits limits;
  unsigned value = 0;
  unsigned pending = 0;
  if (told(ask(c.max_clock, handle_, kNvmlClockSm, &value))) limits.sm_mhz = static_cast<std::int32_t>(value);
  limits.power_mw = number(c.power_limit);
  limits.pcie_width = number(c.max_pcie_width);
  limits.pcie_generation = number(c.max_pcie_generation);
  if (told(ask(c.ecc_mode, handle_, &value, &pending))) limits.ecc = value != 0;
  return limits;
}

GpuSample NvmlGpu::sample(std::int64_t time_ns) const {
  const NvmlCalls& c = nvml_->calls();
  GpuSample sample;
  sample.time_ns = sample.until_ns = time_ns;
  unsigned value = 0;
  unsigned long long limits = 0;
  if (told(ask(c.clock, handle_, kNvmlClockSm, &value))) sample.sm_mhz = static_cast<std::int32_t>(value);
  sample.power_mw = number(c.power);
  if (told(ask(c.temperature, handle_, kNvmlTemperatureOfGpu, &value))) {
    sample.temperature_c = static_cast<std::int32_t>(value);
  }
  if (told(ask(c.clock_limits, handle_, &limits))) sample.limits = limits;
  sample.pcie_width = number(c.pcie_width);
  sample.pcie_generation = number(c.pcie_generation);
  return sample;
}

GpuErrors NvmlGpu::errors() const {
  const NvmlCalls& c = nvml_->calls();
  GpuErrors errors;
  unsigned long long count = 0;
  if (told(ask(c.ecc_errors, handle_, kNvmlCorrected, kNvmlVolatile, &count))) errors.ecc_corrected = count;
  if (told(ask(c.ecc_errors, handle_, kNvmlUncorrected, kNvmlVolatile, &count))) errors.ecc_uncorrected = count;
  for (unsigned link = 0; link < kNvmlMostLinks; ++link) {
    unsigned active = 0;
    if (!told(ask(c.link_state, handle_, link, &active)) || active == 0) continue;
    const auto counted = [&](int which, std::optional<std::uint64_t>& sum) {
      if (told(ask(c.link_errors, handle_, link, which, &count))) add(sum, count);
    };
    counted(kNvmlLinkReplay, errors.nvlink_replays);
    counted(kNvmlLinkRecovery, errors.nvlink_recoveries);
    counted(kNvmlLinkCrcFlit, errors.nvlink_crc);
    counted(kNvmlLinkCrcData, errors.nvlink_crc);
  }
  return errors;
}

std::vector<NvmlGpu::Link> NvmlGpu::active_links() const {
  const NvmlCalls& c = nvml_->calls();
  std::vector<Link> links;
  for (unsigned link = 0; link < kNvmlMostLinks; ++link) {
    unsigned active = 0;
    if (!told(ask(c.link_state, handle_, link, &active)) || active == 0) continue;
    int type = 0;
    NvmlPci far{};
    Link& found = links.emplace_back();
    found.to_switch = told(ask(c.link_far_type, handle_, link, &type)) && type == kNvmlRemoteSwitch;
    if (!found.to_switch && told(ask(c.link_far_end, handle_, link, &far))) found.place = place_text(far);
  }
  return links;
}

std::optional<int> NvmlGpu::common_ancestor(const NvmlGpu& other) const {
  int level = 0;
  if (!told(ask(nvml_->calls().common_ancestor, handle_, other.handle_, &level))) return std::nullopt;
  return level;
}

Nvml::Handle NvmlGpu::watch_xids() const {
  const NvmlCalls& c = nvml_->calls();
  Nvml::Handle set = nullptr;
  if (!told(ask(c.make_event_set, &set))) return nullptr;
  if (told(ask(c.register_events, handle_, kNvmlXidEvent, set))) return set;
  stop_watching(set);
  return nullptr;
}

void NvmlGpu::stop_watching(Nvml::Handle set) const { ask(nvml_->calls().free_event_set, set); }

std::optional<std::uint64_t> NvmlGpu::next_xid(Nvml::Handle set) const {
  NvmlEvent event{};
  if (!told(ask(nvml_->calls().wait_for_event, set, &event, 0U)) || event.type != kNvmlXidEvent) return std::nullopt;
  return event.data;
}

}  // namespace fsdpbench::hardware
