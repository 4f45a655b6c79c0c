#pragma once

#include <cuda_runtime_api.h>
#include <filesystem>
#include <string>

#include "backend/device.h"
#include "base/error.h"
#include "launch/placement.h"

namespace fsdpbench::backend::cuda {

/// Throws BackendError "`what`: <CUDA's own words> (<name>)" unless `status` is success; ResourceError if the device
/// is out of memory.
void check(cudaError_t status, const char* what);
void check(cudaError_t status, const std::string& what);

/// Whether CUDA should load kernels before the first of them is launched. Where it loads one at its first launch, the
/// launch waits for what runs on that process's GPUs. With several ranks as threads of one process that may be a
/// collective which waits for another rank, which waits for its own first launch. A process with one GPU cannot wait
/// for itself so, and need not pay the seconds that loading everything takes.
///
/// `devices` is the folder of device files, /dev. It is found out without CUDA, which must not have started.
bool must_load_kernels_early(const launch::Environment& environment, const std::filesystem::path& devices);

/// GPUs that this process can use. Throws NoDevice with one sentence if there is no driver or no GPU.
int gpu_count();
/// The one that the calling thread uses.
int current_gpu();
/// Its place on the host's bus, "0000:0f:00.0".
std::string gpu_place(int device);
/// Name, clocks, PCI bus id and UUID of one, and the versions of driver and runtime.
Facts gpu_facts(int device);

}  // namespace fsdpbench::backend::cuda
