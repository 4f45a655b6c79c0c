#pragma once

#include <filesystem>

#include "launch/placement.h"

namespace fsdpbench::backend::cuda {

/// Whether CUDA should load kernels before the first of them is launched. Where it loads one at its first launch, the
/// launch waits for what runs on that process's GPUs. With several ranks as threads of one process that may be a
/// collective which waits for another rank, which waits for its own first launch. A process with one GPU cannot wait
/// for itself so, and need not pay the seconds that loading everything takes.
///
/// `devices` is the folder of device files, /dev. It is found out without CUDA, which must not have started.
bool must_load_kernels_early(const launch::Environment& environment, const std::filesystem::path& devices);

}  // namespace fsdpbench::backend::cuda
