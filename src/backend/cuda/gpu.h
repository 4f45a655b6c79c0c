#pragma once

#include <string>

#include "backend/device.h"

namespace fsdpbench::backend::cuda {

/// GPUs that this process can use. Throws NoDevice with one sentence if there is no driver or no GPU.
int gpu_count();
/// The one that the calling thread uses.
int current_gpu();
/// Its place on the host's bus, "0000:0f:00.0".
std::string gpu_place(int device);
/// Name, clocks, PCI bus id and UUID of one, and the versions of driver and runtime.
Facts gpu_facts(int device);

}  // namespace fsdpbench::backend::cuda
