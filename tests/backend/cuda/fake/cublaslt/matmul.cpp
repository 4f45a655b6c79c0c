// Products in plain loops on the stream's thread. It takes nobody's word: a plan made for other matrices, a pointer
// less aligned than promised, matrices that do not fit each other, and a workspace that is too small, not aligned to
// 256 bytes or part of a matrix are refused. Where the caller allowed sums that meet in any order, they do; and a
// workspace that somebody else uses at the same time gives no numbers.

#include "backend/cuda/fake/cublaslt/fake_cublaslt.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "backend/cuda/fake/cublaslt/descriptors.h"
#include "backend/cuda/fake/fake_stream.h"
#include "base/dtype.h"

namespace {

using fake::content;
using fake::LtLayout;
using fake::LtMatmul;

constexpr std::uint32_t kWorkspaceAlignment = 256;

/// Words of a cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t problem;    ///< fingerprint of what it was made for
  std::uint64_t any_order;  ///< of the sum
  std::uint64_t workspace;  ///< bytes
  std::uint32_t alignment_a, alignment_b, alignment_c, alignment_d;
};

struct Library {
  std::mutex mutex;
  fake::LtCounts counts;
};
Library& library() {
  static Library& it = *new Library;  // threads of streams may outlive main
  return it;
}

std::uint64_t fingerprint(const LtMatmul& matmul, const LtLayout& a, const LtLayout& b, const LtLayout& c) {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  };
  for (const std::uint64_t value :
       {std::uint64_t{matmul.compute}, std::uint64_t{matmul.transpose_a}, std::uint64_t{matmul.transpose_b}}) {
    mix(value);
  }
  for (const LtLayout& matrix : {a, b, c}) {
    mix(static_cast<std::uint64_t>(matrix.type));
    mix(matrix.rows);
    mix(matrix.columns);
    mix(static_cast<std::uint64_t>(matrix.leading_dimension));
  }
  return hash;
}

struct Size {
  std::uint64_t m, n, k;
};

Size size_of(const LtMatmul& matmul, const LtLayout& a, const LtLayout& b) {
  const bool ta = matmul.transpose_a == CUBLAS_OP_T;
  const bool tb = matmul.transpose_b == CUBLAS_OP_T;
  return {ta ? a.columns : a.rows, tb ? b.rows : b.columns, ta ? a.rows : a.columns};
}

cublasStatus_t judge(const LtMatmul& matmul, const LtLayout& a, const LtLayout& b, const LtLayout& c) {
  for (const LtLayout& matrix : {a, b, c}) {
    if (matrix.rows == 0 || matrix.columns == 0 || matrix.leading_dimension < static_cast<std::int64_t>(matrix.rows)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const Size s = size_of(matmul, a, b);
  const std::uint64_t k_of_b = matmul.transpose_b == CUBLAS_OP_T ? b.columns : b.rows;
  if (c.rows != s.m || c.columns != s.n || k_of_b != s.k) return CUBLAS_STATUS_INVALID_VALUE;
  if (matmul.compute != CUBLAS_COMPUTE_32F && matmul.compute != CUBLAS_COMPUTE_32F_FAST_TF32) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool floats = a.type == CUDA_R_32F && b.type == CUDA_R_32F && c.type == CUDA_R_32F;
  const bool halves = a.type == CUDA_R_16BF && b.type == CUDA_R_16BF && (c.type == CUDA_R_16BF || c.type == CUDA_R_32F);
  return matmul.scale == CUDA_R_32F && (floats || halves) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

float load(const std::byte* matrix, cudaDataType_t type, std::uint64_t at) {
  if (type == CUDA_R_16BF) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, matrix + at * 2, 2);
    return fsdpbench::bf16_to_float(bits);
  }
  float value = 0;
  std::memcpy(&value, matrix + at * 4, 4);
  return value;
}
void store(std::byte* matrix, cudaDataType_t type, std::uint64_t at, float value) {
  if (type == CUDA_R_16BF) {
    const std::uint16_t bits = fsdpbench::float_to_bf16(value);
    std::memcpy(matrix + at * 2, &bits, 2);
  } else {
    std::memcpy(matrix + at * 4, &value, 4);
  }
}

/// TF32 keeps 10 bits of mantissa; the nearest, halves up.
float to_tf32(float value) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + 0x1000U) & 0xFFFFE000U);
}

/// A stored matrix, or its transpose, as rows x columns floats with the rows of one column together.
std::vector<float> unpacked(const std::byte* matrix, const LtLayout& layout, bool transpose, bool tf32) {
  const std::uint64_t rows = transpose ? layout.columns : layout.rows;
  const std::uint64_t columns = transpose ? layout.rows : layout.columns;
  const auto leading = static_cast<std::uint64_t>(layout.leading_dimension);
  std::vector<float> values(rows * columns);
  for (std::uint64_t j = 0; j < columns; ++j) {
    for (std::uint64_t i = 0; i < rows; ++i) {
      const float value = load(matrix, layout.type, transpose ? i * leading + j : j * leading + i);
      values[j * rows + i] = tf32 ? to_tf32(value) : value;
    }
  }
  return values;
}

/// Bytes that an algorithm which splits its sums wants, as the library's do: an fp32 result for each of some parts,
/// where the sums are long and the result is small.
std::uint64_t wanted_workspace(const Size& s) {
  const std::uint64_t parts = std::clamp<std::uint64_t>(s.k / 64, 1, 8);
  return parts == 1 ? 0 : (parts * s.m * s.n * 4 + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

bool overlap(const void* a, std::uint64_t a_bytes, const void* b, std::uint64_t b_bytes) {
  const auto first = std::bit_cast<std::uintptr_t>(a);
  const auto second = std::bit_cast<std::uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

std::uint64_t bytes_of(const LtLayout& matrix) {
  return static_cast<std::uint64_t>(matrix.leading_dimension) * matrix.columns * (matrix.type == CUDA_R_16BF ? 2 : 4);
}

struct Product {
  LtMatmul matmul;
  LtLayout a, b, c;
  const std::byte* a_memory;
  const std::byte* b_memory;
  const std::byte* c_memory;
  std::byte* d_memory;
  float alpha, beta;
  std::uint64_t first;  ///< the element of k that the sums begin with
  std::byte* workspace = nullptr;
  std::uint64_t workspace_bytes = 0;

  /// Fills the workspace, computes, and looks whether it is still as it was.
  void compute_with_workspace(unsigned char mark) const {
    std::memset(workspace, mark, workspace_bytes);
    compute();
    const bool alone = std::all_of(workspace, workspace + workspace_bytes,
                                   [mark](std::byte found) { return found == static_cast<std::byte>(mark); });
    if (alone) return;
    for (std::uint64_t j = 0; j < c.columns; ++j) {
      for (std::uint64_t i = 0; i < c.rows; ++i) {
        store(d_memory, c.type, j * static_cast<std::uint64_t>(c.leading_dimension) + i, std::nanf(""));
      }
    }
  }

  void compute() const {
    const Size s = size_of(matmul, a, b);
    const bool tf32 = matmul.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const std::vector<float> left = unpacked(a_memory, a, matmul.transpose_a == CUBLAS_OP_T, tf32);
    const std::vector<float> right = unpacked(b_memory, b, matmul.transpose_b == CUBLAS_OP_T, tf32);
    std::vector<float> sums(s.m);
    for (std::uint64_t j = 0; j < s.n; ++j) {
      sums.assign(s.m, 0.0F);
      for (std::uint64_t step = 0; step < s.k; ++step) {
        const std::uint64_t l = (first + step) % s.k;
        const float factor = right[j * s.k + l];
        const float* const column = left.data() + l * s.m;
        for (std::uint64_t i = 0; i < s.m; ++i) sums[i] += column[i] * factor;
      }
      for (std::uint64_t i = 0; i < s.m; ++i) {
        const std::uint64_t at = j * static_cast<std::uint64_t>(c.leading_dimension) + i;
        const float old = beta == 0.0F ? 0.0F : beta * load(c_memory, c.type, at);
        store(d_memory, c.type, at, alpha * sums[i] + old);
      }
    }
  }
};

bool is_aligned(const void* memory, std::uint32_t alignment) {
  return std::bit_cast<std::uintptr_t>(memory) % alignment == 0;
}

/// Whether all columns of the matrix, as it is stored, begin where 16 bytes can be read at once. A column alone has no
/// next one.
bool is_wide(const LtLayout& matrix, std::uint32_t alignment) {
  const std::int64_t element = matrix.type == CUDA_R_16BF ? 2 : 4;
  return alignment % 16 == 0 && (matrix.columns == 1 || matrix.leading_dimension * element % 16 == 0);
}

}  // namespace

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  if (requested < 1 || !(content(c) == content(d))) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = judge(content(matmul), content(a), content(b), content(c));
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const fake::LtPreference& wishes = content(preference);
  constexpr std::uint32_t kInOrder = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const std::uint64_t wanted = wanted_workspace(size_of(content(matmul), content(a), content(b)));
  const Algorithm algorithm{fingerprint(content(matmul), content(a), content(b), content(c)),
                            wishes.reduction_schemes & ~kInOrder,
                            wanted <= wishes.workspace_bytes ? wanted : 0,
                            wishes.alignment_a,
                            wishes.alignment_b,
                            wishes.alignment_c,
                            wishes.alignment_d};
  *found = 1;
  results[0] = {};
  static_assert(sizeof(algorithm) <= sizeof(results[0].algo.data));
  std::memcpy(results[0].algo.data, &algorithm, sizeof(algorithm));
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

namespace fake {

LtCounts lt_counts() {
  const std::lock_guard lock(library().mutex);
  return library().counts;
}
void lt_reset() {
  const std::lock_guard lock(library().mutex);
  library().counts = {};
}

}  // namespace fake

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  static std::atomic<std::uint64_t> calls{0};
  Product p{content(matmul),
            content(a_layout),
            content(b_layout),
            content(c_layout),
            static_cast<const std::byte*>(a),
            static_cast<const std::byte*>(b),
            static_cast<const std::byte*>(c),
            static_cast<std::byte*>(d),
            *static_cast<const float*>(alpha),
            *static_cast<const float*>(beta),
            0,
            static_cast<std::byte*>(workspace),
            0};
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo->data, sizeof(algorithm));
  const bool fits = algorithm.problem == fingerprint(p.matmul, p.a, p.b, p.c) && p.c == content(d_layout) &&
                    is_aligned(a, algorithm.alignment_a) && is_aligned(b, algorithm.alignment_b) &&
                    is_aligned(c, algorithm.alignment_c) && is_aligned(d, algorithm.alignment_d);
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  p.workspace_bytes = algorithm.workspace;
  const bool usable = p.workspace_bytes == 0 || (workspace != nullptr && workspace_bytes >= p.workspace_bytes &&
                                                 is_aligned(workspace, kWorkspaceAlignment) &&
                                                 !overlap(workspace, p.workspace_bytes, a, bytes_of(p.a)) &&
                                                 !overlap(workspace, p.workspace_bytes, b, bytes_of(p.b)) &&
                                                 !overlap(workspace, p.workspace_bytes, d, bytes_of(p.c)));
  if (!usable) return CUBLAS_STATUS_INVALID_VALUE;
  {
    const std::lock_guard lock(library().mutex);
    fake::LtCounts& counts = library().counts;
    ++counts.products;
    const bool wide = is_wide(p.a, algorithm.alignment_a) && is_wide(p.b, algorithm.alignment_b) &&
                      is_wide(p.c, std::min(algorithm.alignment_c, algorithm.alignment_d));
    counts.narrow += p.a.type == CUDA_R_16BF && !wide ? 1 : 0;
  }
  const std::uint64_t call = calls++;
  if (algorithm.any_order != 0) p.first = call % size_of(p.matmul, p.a, p.b).k;
  fake::run_on_stream(stream, [p, call] { p.compute_with_workspace(static_cast<unsigned char>(call)); },
                      {fake::WorkKind::kernel, "cublasLtMatmul", 0});
  return CUBLAS_STATUS_SUCCESS;
}
