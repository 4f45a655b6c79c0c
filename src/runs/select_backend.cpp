// The one file that knows concrete backends.
#include "runs/select_backend.h"

#include <fmt/format.h>

#include "backend/cpu/backend.h"
#include "backend/cuda/backend.h"
#include "backend/device.h"
#include "base/error.h"

namespace fsdpbench::app {

std::unique_ptr<backend::Backend> select_backend(const std::string& name) {
  if (name == "cpu") return backend::cpu::make_cpu_backend();
  if (name == "cuda") return backend::cuda::make_cuda_backend(backend::cpu::make_host_kernels);
  if (name == "virtual") throw ConfigError("This build has no virtual backend; it has \"cpu\" and \"cuda\".");
  throw ConfigError(fmt::format("There is no backend \"{}\"; there are \"cpu\" and \"cuda\".", name));
}

std::optional<int> devices_here(const std::string& name) {
  if (name == "cpu") return std::nullopt;
  try {
    for (const auto& [fact, value] : select_backend(name)->facts()) {
      if (fact == "GPUs") return std::atoi(value.c_str());
    }
  } catch (const backend::NoDevice&) {
    return 0;
  }
  return std::nullopt;
}

}  // namespace fsdpbench::app
