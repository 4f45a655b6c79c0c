#include "backend/cuda/module_loading.h"

#include <string>
#include <string_view>
#include <system_error>

namespace fsdpbench::backend::cuda {
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

}  // namespace

bool must_load_kernels_early(const launch::Environment& environment, const std::filesystem::path& devices) {
  if (launch::find_placement(environment)) return false;  // a process a rank
  const char* const visible = environment("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && std::string_view(visible).find(',') == std::string_view::npos) return false;
  return gpu_files(devices) > 1;
}

}  // namespace fsdpbench::backend::cuda
