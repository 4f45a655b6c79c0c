#include "backend/cuda/kernels/cublaslt.h"

#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

void set(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
  check(cublasLtMatmulDescSetAttribute(matmul, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

}  // namespace

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw BackendError(what + ": " + cublasLtGetStatusString(status) + " (" + cublasLtGetStatusName(status) + ").");
}

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();  // 130100 is 13.1.0
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

LtHandle make_lt_handle() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  return LtHandle(handle);
}

LtMatmul make_lt_matmul(cublasComputeType_t compute, bool transpose_a, bool transpose_b) {
  cublasLtMatmulDesc_t raw = nullptr;
  check(cublasLtMatmulDescCreate(&raw, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  LtMatmul matmul(raw);
  set(raw, CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(raw, CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  return matmul;
}

LtLayout make_lt_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t leading_dimension) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                   leading_dimension),
        "cublasLtMatrixLayoutCreate");
  return LtLayout(layout);
}

LtPreference make_lt_preference(const LtLimits& limits) {
  cublasLtMatmulPreference_t raw = nullptr;
  check(cublasLtMatmulPreferenceCreate(&raw), "cublasLtMatmulPreferenceCreate");
  LtPreference preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limits.workspace_bytes);
  constexpr std::uint32_t kReproducible = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReproducible);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, limits.alignment_a);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, limits.alignment_b);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, limits.alignment_c);
  set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, limits.alignment_c);
  return preference;
}

}  // namespace fsdpbench::backend::cuda
