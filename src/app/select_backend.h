#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace fsdpbench::app {

/// The backend of that name: "cpu". Throws ConfigError for a name that this build lacks or nobody knows.
std::unique_ptr<backend::Backend> select_backend(const std::string& name);

}  // namespace fsdpbench::app
