#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

#include "app/machine/machine_facts.h"
#include "base/bytes.h"

/// The driver's own libraries, opened at run time with the few prototypes used here: the program neither needs CUDA to
/// be built nor to start.
namespace fsdpbench::app {
namespace {

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
  const Library nvml(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!nvml) return false;
  struct Memory {
    unsigned long long total, free, used;
  };
  auto* init = find<int()>(nvml, "nvmlInit_v2");
  auto* shutdown = find<int()>(nvml, "nvmlShutdown");
  auto* driver = find<int(char*, unsigned)>(nvml, "nvmlSystemGetDriverVersion");
  auto* count = find<int(unsigned*)>(nvml, "nvmlDeviceGetCount_v2");
  auto* handle = find<int(unsigned, void**)>(nvml, "nvmlDeviceGetHandleByIndex_v2");
  auto* name = find<int(void*, char*, unsigned)>(nvml, "nvmlDeviceGetName");
  auto* memory = find<int(void*, Memory*)>(nvml, "nvmlDeviceGetMemoryInfo");
  if (!init || !shutdown || !driver || !count || !handle || !name || !memory || init() != 0) return false;
  std::array<char, 96> text{};
  if (driver(text.data(), text.size()) == 0) facts.driver = text.data();
  unsigned gpus = 0;
  if (count(&gpus) != 0) gpus = 0;
  for (unsigned i = 0; i < gpus; ++i) {
    void* gpu = nullptr;
    Memory bytes{};
    if (handle(i, &gpu) != 0 || name(gpu, text.data(), text.size()) != 0) continue;
    const bool known = memory(gpu, &bytes) == 0;
    facts.gpus.push_back(known
                             ? fmt::format("{}, {}", text.data(), format_bytes(static_cast<std::int64_t>(bytes.total)))
                             : std::string(text.data()));
  }
  shutdown();
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

}  // namespace

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

}  // namespace fsdpbench::app
