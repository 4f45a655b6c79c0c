#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace fsdpbench::backend::cuda {

/// Throws BackendError "`what`: <cuBLASLt's own words> (<name>)." unless `status` is success.
void check(cublasStatus_t status, const std::string& what);

/// "cuBLASLt 13.1.0", of the library as loaded.
std::string cublaslt_version();

/// Objects of cuBLASLt that end with their owner.
template <auto destroy>
struct DestroyLt {
  template <class T>
  void operator()(T* object) const {
    destroy(object);
  }
};
template <class Handle, auto destroy>
using LtObject = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyLt<destroy>>;

using LtHandle = LtObject<cublasLtHandle_t, cublasLtDestroy>;
using LtMatmul = LtObject<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = LtObject<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = LtObject<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// The library, and one product of it. Both throw BackendError with cuBLASLt's words; the first needs a GPU.
LtHandle make_lt_handle();
LtMatmul make_lt_matmul(cublasComputeType_t compute, bool transpose_a, bool transpose_b);
/// A column-major matrix as it is stored.
LtLayout make_lt_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t leading_dimension);

/// Limits of what the algorithm may use and rely on: bytes of workspace, alignment of the matrices in bytes.
struct LtLimits {
  std::size_t workspace_bytes = 0;
  std::uint32_t alignment_a = 0, alignment_b = 0, alignment_c = 0;
};
/// Allows only algorithms that give the same bits each time: if the sum over k is split, its parts meet in the
/// workspace, in f32 and in a fixed order, and not in the result.
LtPreference make_lt_preference(const LtLimits& limits);

}  // namespace fsdpbench::backend::cuda
