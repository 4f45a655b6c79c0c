#include "backend/cuda/kernels/math_libraries.h"

#include "backend/cuda/kernels/attention_cudnn.h"
#include "backend/cuda/kernels/cublaslt.h"

namespace fsdpbench::backend::cuda {

std::string math_libraries() { return cublaslt_version() + ", " + cudnn_version(); }

}  // namespace fsdpbench::backend::cuda
