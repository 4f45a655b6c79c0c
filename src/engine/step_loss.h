#pragma once

#include <cstdint>

namespace fsdpbench::engine {

/// The mean loss over ranks of a step.
struct StepLoss {
  std::int64_t steps = 0;  ///< how many steps were done with it
  double mean = 0;
};

}  // namespace fsdpbench::engine
