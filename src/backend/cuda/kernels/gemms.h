#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Matrix products on one stream. Owns the library's handle, its workspace and the plans of the shapes seen so far,
/// all made at first use.
class Gemms {
 public:
  explicit Gemms(cudaStream_t stream);
  ~Gemms();
  Gemms(const Gemms&) = delete;
  Gemms& operator=(const Gemms&) = delete;

  /// Enqueues the product; empty ones (m, n or k is 0) included.
  void run(const Gemm& gemm);
  /// Device memory held beside the caller's.
  std::int64_t workspace_bytes() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace fsdpbench::backend::cuda
