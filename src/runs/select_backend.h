#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"

namespace fsdpbench::app {

/// The backend of that name: "cpu" or "cuda". Throws ConfigError for a name that nobody knows, or a backend that this
/// build or machine does not have.
std::unique_ptr<backend::Backend> select_backend(const std::string& name);

/// GPUs that the ranks of backend `name` may have on this host, one each; 0: there is none, or no driver. Nothing for
/// processors, of which any number of ranks may run. Throws ConfigError as select_backend() if this build lacks it.
std::optional<int> devices_here(const std::string& name);

}  // namespace fsdpbench::app
