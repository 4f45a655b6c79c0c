#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace fsdpbench::app {

/// The backend of that name: "cpu" or "cuda". Throws ConfigError for a name that nobody knows, or a backend that this
/// build or machine does not have.
std::unique_ptr<backend::Backend> select_backend(const std::string& name);

}  // namespace fsdpbench::app
