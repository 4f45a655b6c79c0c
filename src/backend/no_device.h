#pragma once

#include "base/error.h"

namespace fsdpbench::backend {

/// A backend is built in, and this machine has no device for it: no driver, or no GPU that answers.
class NoDevice : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

}  // namespace fsdpbench::backend
