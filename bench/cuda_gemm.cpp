// The GPU's matrix products over cuBLASLt called alone, in turns, on the shapes of decoders of about 0.1, 1 and 3
// billion parameters in bf16. Counters: TFLOP/s of the backend; `of_library`, its rate over that of cuBLASLt with its
// own defaults (no reproducible sums asked for, aligned matrices assumed, its first choice); `of_best`, over the
// fastest of cuBLASLt's first eight choices. Needs a GPU.

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/cublaslt.h"
#include "backend/cuda/kernels/gemms.h"
#include "cuda_stopwatch.h"
#include "library_context.h"
#include "shapes.h"

namespace fsdpbench {
namespace {

using backend::Gemm;
using backend::cuda::check;
using bench::median;
using bench::Memory;
using bench::random_matrix;
using bench::Stopwatch;

/// Product by cuBLASLt, which sees row-major matrices transposed.
class Library {
 public:
  Library(const Gemm& gemm, cudaStream_t stream)
      : gemm_(gemm),
        stream_(stream),
        handle_(backend::cuda::make_lt_handle()),
        matmul_(backend::cuda::make_lt_matmul(CUBLAS_COMPUTE_32F, gemm.transpose_b, gemm.transpose_a)),
        a_(stored(gemm.m, gemm.k, gemm.transpose_a)),
        b_(stored(gemm.k, gemm.n, gemm.transpose_b)),
        c_(stored(gemm.m, gemm.n, false)) {
    cublasLtMatmulPreference_t raw = nullptr;
    check(cublasLtMatmulPreferenceCreate(&raw), "preference");
    const backend::cuda::LtPreference preference(raw);
    const std::size_t bytes = kWorkspace;
    check(cublasLtMatmulPreferenceSetAttribute(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)),
          "preference");
    check(cublasLtMatmulAlgoGetHeuristic(handle_.get(), matmul_.get(), b_.get(), a_.get(), c_.get(), c_.get(), raw,
                                         static_cast<int>(choices_.size()), choices_.data(), &found_),
          "cublasLtMatmulAlgoGetHeuristic");
    check(found_ > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
  }

  int choices() const { return found_; }
  void run(int choice) const {
    check(cublasLtMatmul(handle_.get(), matmul_.get(), &gemm_.alpha, gemm_.b, b_.get(), gemm_.a, a_.get(), &gemm_.beta,
                         gemm_.c, c_.get(), gemm_.c, c_.get(), &choices_[static_cast<std::size_t>(choice)].algo,
                         workspace_.data(), kWorkspace, stream_),
          "cublasLtMatmul");
  }

 private:
  static constexpr std::int64_t kWorkspace = 64 << 20;
  static backend::cuda::LtLayout stored(std::int64_t rows, std::int64_t columns, bool transposed) {
    if (transposed) std::swap(rows, columns);
    return backend::cuda::make_lt_layout(CUDA_R_16BF, columns, rows, columns);
  }

  Gemm gemm_;
  cudaStream_t stream_;
  backend::cuda::LtHandle handle_;
  backend::cuda::LtMatmul matmul_;
  backend::cuda::LtLayout a_, b_, c_;
  Memory workspace_{kWorkspace};
  std::array<cublasLtMatmulHeuristicResult_t, 8> choices_{};
  int found_ = 0;
};

void gemm(benchmark::State& state, Gemm g) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  {
    const auto a = random_matrix(g.m * g.k);
    const auto b = random_matrix(g.k * g.n);
    const Memory c(g.m * g.n * 2);
    g.a = a->data();
    g.b = b->data();
    g.c = c.data();
    g.input_dtype = g.output_dtype = DType::bf16;
    backend::cuda::Gemms gemms(stream);
    const Library library(g, stream);
    const Stopwatch stopwatch(stream);

    gemms.run(g);
    int best = 0;
    double best_seconds = 0;
    for (int choice = 0; choice < library.choices(); ++choice) {
      library.run(choice);
      const double seconds = stopwatch.seconds([&] { library.run(choice); });
      if (choice == 0 || seconds < best_seconds) {
        best = choice;
        best_seconds = seconds;
      }
    }
    std::vector<double> ours, first, fastest;
    for (auto _ : state) {
      first.push_back(stopwatch.seconds([&] { library.run(0); }));
      ours.push_back(stopwatch.seconds([&] { gemms.run(g); }));
      fastest.push_back(stopwatch.seconds([&] { library.run(best); }));
      state.SetIterationTime(ours.back());
    }
    const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
    state.counters["TFLOP/s"] = flops * 1e-12 / median(ours);
    state.counters["of_library"] = median(first) / median(ours);
    state.counters["of_best"] = median(fastest) / median(ours);
  }
  check(cudaStreamDestroy(stream), "stream");
}

struct Decoder {
  const char* size;
  std::int64_t rows, width, ffn_width, vocab;
};
constexpr Decoder kDecoders[] = {
    {"0.1B", 16384, 768, 3072, 50257}, {"1B", 8192, 2048, 8192, 128256}, {"3B", 4096, 3072, 8192, 128256}};

/// y = x w^T, d_x = d_y w and d_w = d_y^T x of the layer from `in` to `out`.
void add_layer(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out) {
  const std::pair<const char*, Gemm> passes[] = {
      {"forward", {.m = rows, .n = out, .k = in, .transpose_b = true}},
      {"input_gradient", {.m = rows, .n = in, .k = out}},
      {"weight_gradient", {.m = out, .n = in, .k = rows, .transpose_a = true}}};
  for (const auto& [pass, shape] : passes) {
    benchmark::RegisterBenchmark((name + "/" + pass).c_str(), gemm, shape)
        ->Iterations(bench::repetitions(11))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  int gpus = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&gpus); status != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "bench_cuda_gemm needs a GPU: %s.\n",
                 status == cudaSuccess ? "there is none" : cudaGetErrorString(status));
    return 1;
  }
  for (const fsdpbench::Decoder& d : fsdpbench::kDecoders) {
    using fsdpbench::bench::kShrink, fsdpbench::bench::shrunk;
    const std::string size = d.size;
    fsdpbench::add_layer(size + "/attention", d.rows / kShrink, shrunk(d.width), shrunk(d.width));
    fsdpbench::add_layer(size + "/feed_forward", d.rows / kShrink, shrunk(d.width), shrunk(d.ffn_width));
    fsdpbench::add_layer(size + "/vocabulary", d.rows / kShrink, shrunk(d.width), d.vocab / kShrink);
  }
  benchmark::Initialize(&argc, argv);
  fsdpbench::bench::add_library_context();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
