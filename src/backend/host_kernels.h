#pragma once

#include <functional>
#include <memory>

#include "backend/kernels.h"

namespace fsdpbench::backend {

/// Makes the kernels of a lane whose work the host's processors do, on the thread that will call them. Large updates
/// and copies may run on so many threads at once, the calling one among them; the bits do not depend on how many.
using MakeHostKernels = std::function<std::unique_ptr<Kernels>(int threads)>;

}  // namespace fsdpbench::backend
