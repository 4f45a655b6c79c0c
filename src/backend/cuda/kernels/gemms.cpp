#include "backend/cuda/kernels/gemms.h"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/cublaslt.h"
#include "backend/cuda/kernels/scratch.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// More alignment than this no algorithm asks for. Not looking further keeps the choice, and so the bits, independent
/// of where in memory a well-aligned matrix lies.
constexpr std::uint64_t kMostAlignment = 16;

std::uint32_t alignment_of(const void* pointer) {
  return std::uint32_t{1} << std::countr_zero(std::bit_cast<std::uintptr_t>(pointer) | kMostAlignment);
}

/// All that the choice of an algorithm depends on.
struct PlanKey {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  bool transpose_a = false, transpose_b = false;
  DType input = DType::f32, output = DType::f32;
  std::uint32_t alignment_a = 0, alignment_b = 0, alignment_c = 0;
  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const {
    std::size_t hash = 0;
    for (const std::int64_t value :
         {key.m, key.n, key.k, key.stride_a, key.stride_b, key.stride_c, std::int64_t{key.transpose_a},
          std::int64_t{key.transpose_b}, static_cast<std::int64_t>(key.input), static_cast<std::int64_t>(key.output),
          std::int64_t{key.alignment_a}, std::int64_t{key.alignment_b}, std::int64_t{key.alignment_c}}) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15ULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

PlanKey key_of(const Gemm& gemm) {
  return {gemm.m,
          gemm.n,
          gemm.k,
          gemm.a_stride,
          gemm.b_stride,
          gemm.c_stride,
          gemm.transpose_a,
          gemm.transpose_b,
          gemm.input_dtype,
          gemm.output_dtype,
          alignment_of(gemm.a),
          alignment_of(gemm.b),
          std::min(alignment_of(gemm.c), alignment_of(gemm.addend))};  // of a null pointer the most
}

struct Plan {
  LtMatmul matmul;
  LtLayout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
};

cudaDataType_t lt_type(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

std::string cannot_multiply(const PlanKey& key) {
  const auto size = [](std::int64_t rows, std::int64_t columns, bool transposed) {
    return std::to_string(rows) + " x " + std::to_string(columns) + (transposed ? " (stored transposed)" : "");
  };
  return "cuBLASLt cannot multiply " + std::string(to_string(key.input)) + " " + size(key.m, key.k, key.transpose_a) +
         " by " + size(key.k, key.n, key.transpose_b) + " into " + std::string(to_string(key.output));
}

}  // namespace

// cuBLASLt's matrices are column-major: it sees each of ours transposed. So it is asked for c^T = op(b)^T op(a)^T,
// with b as its first factor and a as its second, n x m, and each keeps its transpose flag.
class Gemms::Library {
 public:
  Library(cudaStream_t stream, Fp32Products fp32_products)
      : stream_(stream), fp32_products_(fp32_products), workspace_(stream) {}

  std::int64_t workspace_bytes() const { return workspace_.bytes(); }

  void run(const Gemm& gemm) {
    if (gemm.m == 0 || gemm.n == 0) return;
    if (gemm.k == 0) return of_nothing(gemm);
    if (handle_ == nullptr) open();
    const PlanKey key = key_of(gemm);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, make(key)).first;
    const Plan& plan = found->second;
    const std::byte* const addend = gemm.addend != nullptr ? gemm.addend : gemm.c;
    const cublasStatus_t status =
        cublasLtMatmul(handle_.get(), plan.matmul.get(), &gemm.alpha, gemm.b, plan.b.get(), gemm.a, plan.a.get(),
                       &gemm.beta, addend, plan.c.get(), gemm.c, plan.c.get(), &plan.algorithm,
                       workspace_.get(workspace_.bytes()), workspace_.bytes(), stream_);
    if (status != CUBLAS_STATUS_SUCCESS) check(status, cannot_multiply(key));
  }

 private:
  void open() {
    int device = 0;
    int major = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    workspace_.get((major >= 9 ? 64 : 32) * kMiB);
    handle_ = make_lt_handle();
  }

  Plan make(const PlanKey& key) {
    const bool tf32 = key.input == DType::f32 && fp32_products_ == Fp32Products::tf32;
    const auto stored = [](DType dtype, std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t stride) {
      return make_lt_layout(lt_type(dtype), transposed ? rows : columns, transposed ? columns : rows, stride);
    };
    Plan plan{
        make_lt_matmul(tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, key.transpose_b, key.transpose_a),
        stored(key.input, key.m, key.k, key.transpose_a, key.stride_a),
        stored(key.input, key.k, key.n, key.transpose_b, key.stride_b),
        stored(key.output, key.m, key.n, false, key.stride_c)};
    const LtPreference preference = make_lt_preference({.workspace_bytes = static_cast<std::size_t>(workspace_.bytes()),
                                                        .alignment_a = key.alignment_b,
                                                        .alignment_b = key.alignment_a,
                                                        .alignment_c = key.alignment_c});
    cublasLtMatmulHeuristicResult_t choice{};
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.matmul.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                         plan.c.get(), preference.get(), 1, &choice, &found),
          cannot_multiply(key));
    check(found == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : choice.state, cannot_multiply(key));
    plan.algorithm = choice.algo;
    return plan;
  }

  /// Computes a product of no elements: only the addend.
  void of_nothing(const Gemm& gemm) const {
    const bool add = gemm.beta != 0.0F;
    if (add && gemm.addend == nullptr) return;
    const std::size_t element = size_of(gemm.output_dtype);
    const std::size_t width = static_cast<std::size_t>(gemm.n) * element;
    const std::size_t pitch = static_cast<std::size_t>(gemm.c_stride) * element;
    const std::size_t rows = gemm.m;
    check(add ? cudaMemcpy2DAsync(gemm.c, pitch, gemm.addend, pitch, width, rows, cudaMemcpyDeviceToDevice, stream_)
              : cudaMemset2DAsync(gemm.c, pitch, 0, width, rows, stream_),
          "a product over no elements");
  }

  cudaStream_t stream_;
  Fp32Products fp32_products_;
  LtHandle handle_;
  Scratch workspace_;
  std::unordered_map<PlanKey, Plan, PlanKeyHash> plans_;
};

Gemms::Gemms(cudaStream_t stream, Fp32Products fp32_products)
    : library_(std::make_unique<Library>(stream, fp32_products)) {}
Gemms::~Gemms() = default;

void Gemms::run(const Gemm& gemm) { library_->run(gemm.with_strides()); }

std::int64_t Gemms::workspace_bytes() const { return library_->workspace_bytes(); }

}  // namespace fsdpbench::backend::cuda
