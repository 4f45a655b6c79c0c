#include "backend/cuda/check.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <system_error>

#include "backend/device.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  const std::string message = what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")";
  if (status == cudaErrorMemoryAllocation) throw ResourceError(message);
  throw BackendError(message);
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) check(status, std::string(what));
}

namespace {

int gpu_files(const std::filesystem::path& devices) {
  int gpus = 0;
  std::error_code ignored;
  // Containers keep a device's number: what one has may begin with nvidia4.
  for (std::filesystem::directory_iterator entry(devices, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with("nvidia") || name == "nvidia") continue;
    if (name.find_first_not_of("0123456789", std::string_view("nvidia").size()) == std::string::npos) ++gpus;
  }
  return gpus;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// As the driver's tools write it: "GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427".
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "an attribute of the GPU");
  return value;
}

}  // namespace

bool must_load_kernels_early(const launch::Environment& environment, const std::filesystem::path& devices) {
  if (launch::find_placement(environment)) return false;  // a process a rank
  const char* const visible = environment("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && std::string_view(visible).find(',') == std::string_view::npos) return false;
  return gpu_files(devices) > 1;
}

int gpu_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
      throw backend::NoDevice(
          "The cuda backend needs NVIDIA's driver, and this machine has none; device.backend = \"cpu\" "
          "works everywhere.");
    }
    throw ConfigError(
        fmt::format("The cuda backend was built for CUDA {}, and this machine's driver only knows CUDA {}: "
                    "a newer driver is needed.",
                    version_text(runtime), version_text(driver)));
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    throw backend::NoDevice(
        "The cuda backend needs a GPU, and this process sees none (CUDA_VISIBLE_DEVICES may hide it); "
        "device.backend = \"cpu\" works everywhere.");
  }
  if (status != cudaSuccess) {
    throw backend::NoDevice(
        fmt::format("The cuda backend cannot be used: {} ({}).", cudaGetErrorString(status), cudaGetErrorName(status)));
  }
  return count;
}

int current_gpu() {
  int device = 0;
  check(cudaGetDevice(&device), "the number of the GPU");
  return device;
}

std::string gpu_place(int device) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "the GPU's place on the bus");
  return bus.data();
}

Facts gpu_facts(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "the GPU's properties");
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver), "the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "the runtime's version");
  return {{"GPU", fmt::format("{} (sm_{}{}), {} multiprocessors, PCI {}", properties.name, properties.major,
                              properties.minor, properties.multiProcessorCount, gpu_place(device))},
          {"GPU UUID", uuid_text(properties.uuid)},
          {"GPU clocks at most",
           fmt::format("{} MHz, memory {} MHz x {} bits", attribute(cudaDevAttrClockRate, device) / 1000,
                       attribute(cudaDevAttrMemoryClockRate, device) / 1000,
                       attribute(cudaDevAttrGlobalMemoryBusWidth, device))},
          {"CUDA", fmt::format("runtime {}, driver knows {}", version_text(runtime), version_text(driver))}};
}

}  // namespace fsdpbench::backend::cuda
