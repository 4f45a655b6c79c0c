#pragma once

#include <nccl.h>
#include <cstddef>
#include <string>

#include "backend/backend.h"

namespace fsdpbench::backend::cuda {

/// NCCL's own words for `result`: its kind and, if there is one, the last error's text. `comm` may be null.
std::string nccl_words(ncclResult_t result, ncclComm_t comm);

// Everything that depends on which NCCL this was built with and which one runs: the two may differ, because NCCL is
// a shared library. The one file that asks the preprocessor which NCCL this is.

/// The version that runs, as NCCL counts: 22809 for 2.28.9.
int nccl_runtime_version();

/// The NCCL this process runs with, for people: "2.28.9 (built with 2.28.9)".
std::string nccl_version();

/// Throws ConfigError, naming the wish, the version it needs and those at hand, if `options` ask for something that
/// the header or the library lacks, or if the library is too old for this program altogether.
void require_nccl(const NcclOptions& options);

/// A non-blocking communicator with the CTA wishes of `options`, which require_nccl() has accepted.
ncclConfig_t nccl_config(const NcclOptions& options);

using NcclWindow = void*;
/// ncclCommWindowRegister for buffers that lie at equal offsets on all ranks; collective. `window` stays null where
/// NCCL accepts the call and does nothing; without symmetric memory (ranks that reach each other by network only) it is
/// the handle of a local registration.
ncclResult_t register_window(ncclComm_t comm, void* memory, std::size_t bytes, NcclWindow* window);
ncclResult_t deregister_window(ncclComm_t comm, NcclWindow window);

}  // namespace fsdpbench::backend::cuda
