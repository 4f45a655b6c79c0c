#pragma once

// Opaque descriptors of the fake cuBLASLt. Only the attributes that the backend sets exist: any other
// is CUBLAS_STATUS_NOT_SUPPORTED.

#include <cublasLt.h>

#include <cstdint>

namespace fake {

struct LtMatmul {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
};

/// Column-major.
struct LtLayout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading_dimension;
  bool operator==(const LtLayout&) const = default;
};

struct LtPreference {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

inline const LtMatmul& content(cublasLtMatmulDesc_t d) { return *reinterpret_cast<const LtMatmul*>(d); }
inline const LtLayout& content(cublasLtMatrixLayout_t d) { return *reinterpret_cast<const LtLayout*>(d); }
inline const LtPreference& content(cublasLtMatmulPreference_t d) { return *reinterpret_cast<const LtPreference*>(d); }

}  // namespace fake
