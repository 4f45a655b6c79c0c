#pragma once

#include <nccl.h>

#include <string>

namespace fsdpbench::backend::cuda {

/// What NCCL itself says of `result`: its kind and, if there is one, the last error's text. `comm` may be null.
std::string nccl_words(ncclResult_t result, ncclComm_t comm);

}  // namespace fsdpbench::backend::cuda
