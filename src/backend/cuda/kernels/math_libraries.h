#pragma once

#include <string>

namespace fsdpbench::backend::cuda {

/// Names and versions of the libraries that multiply and attend, as loaded: "cuBLASLt 13.1.0, cuDNN 9.19.0".
std::string math_libraries();

}  // namespace fsdpbench::backend::cuda
