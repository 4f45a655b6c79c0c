#pragma once

#include <cstdint>

#include "base/clock.h"

namespace fsdpbench::backend::cuda {

inline std::int64_t global_timer_ns() { return now_ns(); }

}  // namespace fsdpbench::backend::cuda
