// The one file that knows concrete backends.
#include "app/select_backend.h"

#include <fmt/format.h>

#include "backend/cpu/backend.h"
#include "base/error.h"

namespace fsdpbench::app {

std::unique_ptr<backend::Backend> select_backend(const std::string& name) {
  if (name == "cpu") return backend::cpu::make_cpu_backend();
  if (name == "cuda" || name == "virtual") {
    throw ConfigError(fmt::format("This build has no {} backend; it has \"cpu\".", name));
  }
  throw ConfigError(fmt::format("There is no backend \"{}\"; this build has \"cpu\".", name));
}

}  // namespace fsdpbench::app
