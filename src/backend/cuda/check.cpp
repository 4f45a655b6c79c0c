#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {

void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  const std::string message = what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")";
  if (status == cudaErrorMemoryAllocation) throw ResourceError(message);
  throw BackendError(message);
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) check(status, std::string(what));
}

}  // namespace fsdpbench::backend::cuda
