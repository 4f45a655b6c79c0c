#include "backend/cuda/fake/cublaslt/descriptors.h"

#include <cstring>
#include <new>

namespace {

template <class Content, class Opaque, class... Arguments>
cublasStatus_t create(Opaque** descriptor, Arguments... arguments) {
  *descriptor = reinterpret_cast<Opaque*>(new Content{arguments...});
  return CUBLAS_STATUS_SUCCESS;
}
template <class Content, class Opaque>
cublasStatus_t destroy(Opaque* descriptor) {
  delete reinterpret_cast<Content*>(descriptor);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t assign(T& target, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&target, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

int handles = 0;

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&handles);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return create<fake::LtMatmul>(descriptor, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return destroy<fake::LtMatmul>(descriptor);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  auto& matmul = *reinterpret_cast<fake::LtMatmul*>(descriptor);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return assign(matmul.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return assign(matmul.transpose_b, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* descriptor, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading_dimension) {
  return create<fake::LtLayout>(descriptor, type, rows, columns, leading_dimension);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t descriptor) {
  return destroy<fake::LtLayout>(descriptor);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* descriptor) {
  return create<fake::LtPreference>(descriptor);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t descriptor) {
  return destroy<fake::LtPreference>(descriptor);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t descriptor,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  auto& preference = *reinterpret_cast<fake::LtPreference*>(descriptor);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return assign(preference.workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return assign(preference.reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return assign(preference.alignment_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return assign(preference.alignment_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return assign(preference.alignment_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return assign(preference.alignment_d, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
