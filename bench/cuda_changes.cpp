// Gains of single decisions of the CUDA backend, each against doing without it, in turns: counter `speedup`,
// above 1 where the decision pays. Shapes are those of profiles/runs/gpu-1b.toml and gpu-100m.toml. Needs a GPU.

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/cuda_kernels.h"
#include "backend/cuda/kernels/gemms.h"
#include "backend/kernels.h"
#include "cuda_stopwatch.h"
#include "library_context.h"
#include "shapes.h"

namespace fsdpbench {
namespace {

using backend::AttentionShape;
using backend::Gemm;
using backend::cuda::check;
using bench::Memory;
using bench::random_matrix;

using bench::kShrink, bench::kShrinkOfHeads, bench::shrunk;

constexpr AttentionShape kAttention{
    4, 2048 / kShrink, 32 / kShrinkOfHeads, 8 / kShrinkOfHeads, 64 / kShrinkOfHeads, DType::bf16};
constexpr std::int64_t kRows = kAttention.batch * kAttention.seq, kWidth = kAttention.heads * kAttention.head_dim,
                       kKeyWidth = kAttention.kv_heads * kAttention.head_dim, kFfnWidth = shrunk(8192);  // gpu-1b
constexpr std::int64_t kSmallRows = 16384 / kShrink, kSmallWidth = shrunk(768), kVocab = 50257 / kShrink,
                       kStride = (kVocab + 7) / 8 * 8;  // gpu-100m

Gemm bf16(Gemm gemm) {
  gemm.input_dtype = gemm.output_dtype = DType::bf16;
  return gemm;
}

/// One stream with kernels as the backend has them.
class Gpu {
 public:
  explicit Gpu(const backend::Arithmetic& arithmetic = {}) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    kernels_ = backend::cuda::make_cuda_kernels(stream_, arithmetic);
  }
  ~Gpu() {
    cudaStreamSynchronize(stream_);
    kernels_.reset();
    cudaStreamDestroy(stream_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  backend::Kernels& kernels() { return *kernels_; }
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<backend::cuda::StreamKernels> kernels_;
};

using Call = std::function<void()>;

void compare(benchmark::State& state, cudaStream_t with_stream, const Call& with, cudaStream_t without_stream,
             const Call& without) {
  const bench::Stopwatch with_watch(with_stream), without_watch(without_stream);
  with_watch.seconds(with, 3);
  without_watch.seconds(without, 3);
  std::vector<double> with_s, without_s;
  for (auto _ : state) {
    without_s.push_back(without_watch.seconds(without));
    with_s.push_back(with_watch.seconds(with));
    state.SetIterationTime(with_s.back());
  }
  state.counters["speedup"] = bench::median(without_s) / bench::median(with_s);
}

void rotary_of_queries_and_keys_at_once(benchmark::State& state) {
  Gpu gpu;
  const auto q = random_matrix(kRows * kWidth), k = random_matrix(kRows * kKeyWidth);
  AttentionShape queries = kAttention, keys = kAttention;
  queries.kv_heads = 0;
  keys.heads = keys.kv_heads;
  keys.kv_heads = 0;
  compare(
      state, gpu.stream(), [&] { gpu.kernels().rotary(kAttention, q->data(), k->data(), 1e4F, false); }, gpu.stream(),
      [&] {
        gpu.kernels().rotary(queries, q->data(), nullptr, 1e4F, false);
        gpu.kernels().rotary(keys, k->data(), nullptr, 1e4F, false);
      });
}

void residual_added_by_the_product(benchmark::State& state) {
  Gpu gpu;
  const auto x = random_matrix(kRows * kFfnWidth), w = random_matrix(kWidth * kFfnWidth),
             residual = random_matrix(kRows * kWidth);
  const Memory y(kRows * kWidth * 2);
  const Gemm product = bf16(
      {.a = x->data(), .b = w->data(), .c = y.data(), .m = kRows, .n = kWidth, .k = kFfnWidth, .transpose_b = true});
  Gemm added = product;
  added.addend = residual->data();
  added.beta = 1.0F;
  compare(
      state, gpu.stream(), [&] { gpu.kernels().gemm(added); }, gpu.stream(),
      [&] {
        gpu.kernels().gemm(product);
        gpu.kernels().add(y.data(), residual->data(), y.data(), kRows * kWidth, DType::bf16);
      });
}

/// The head of a vocabulary of 50257: its product, its loss and both gradients.
void rows_of_logits_apart(benchmark::State& state) {
  Gpu gpu;
  const auto x = random_matrix(kSmallRows * kSmallWidth), w = random_matrix(kVocab * kSmallWidth);
  const Memory logits(kSmallRows * kStride * 2), d_x(kSmallRows * kSmallWidth * 2), d_w(kVocab * kSmallWidth * 2),
      targets(kSmallRows * 4), loss(4);
  check(cudaMemset(targets.data(), 0, kSmallRows * 4), "targets");
  const auto head = [&](std::int64_t stride) {
    backend::Kernels& k = gpu.kernels();
    k.gemm(bf16({.a = x->data(),
                 .b = w->data(),
                 .c = logits.data(),
                 .m = kSmallRows,
                 .n = kVocab,
                 .k = kSmallWidth,
                 .transpose_b = true,
                 .c_stride = stride}));
    k.cross_entropy({.part = backend::VocabularyPart::all(kVocab),
                     .rows = kSmallRows,
                     .stride = stride,
                     .dtype = DType::bf16,
                     .logits = logits.data(),
                     .targets = reinterpret_cast<const std::int32_t*>(targets.data()),
                     .loss = reinterpret_cast<float*>(loss.data())});
    k.gemm(bf16({.a = logits.data(),
                 .b = x->data(),
                 .c = d_w.data(),
                 .m = kVocab,
                 .n = kSmallWidth,
                 .k = kSmallRows,
                 .transpose_a = true,
                 .a_stride = stride}));
    k.gemm(bf16({.a = logits.data(),
                 .b = w->data(),
                 .c = d_x.data(),
                 .m = kSmallRows,
                 .n = kSmallWidth,
                 .k = kVocab,
                 .a_stride = stride}));
  };
  compare(
      state, gpu.stream(), [&] { head(kStride); }, gpu.stream(), [&] { head(kVocab); });
}

void attention_backward_in_any_order(benchmark::State& state) {
  Gpu any({.deterministic = false}), fixed({.deterministic = true});
  const std::int64_t queries = kRows * kWidth, keys = kRows * kKeyWidth;
  const auto q = random_matrix(queries), k = random_matrix(keys), v = random_matrix(keys),
             d_out = random_matrix(queries);
  const Memory out(queries * 2), statistics(kRows * kAttention.heads * 4), d_q(queries * 2), d_k(keys * 2),
      d_v(keys * 2), scratch(backend::attention_backward_scratch_bytes(kAttention));
  auto* const log_sum_exp = reinterpret_cast<float*>(statistics.data());
  any.kernels().attention({.shape = kAttention,
                           .q = q->data(),
                           .k = k->data(),
                           .v = v->data(),
                           .out = out.data(),
                           .log_sum_exp = log_sum_exp,
                           .scratch = scratch.data()});
  check(cudaStreamSynchronize(any.stream()), "forward");
  const auto backward = [&](Gpu& gpu) {
    return [&] {
      gpu.kernels().attention_backward({.shape = kAttention,
                                        .d_out = d_out->data(),
                                        .q = q->data(),
                                        .k = k->data(),
                                        .v = v->data(),
                                        .out = out.data(),
                                        .log_sum_exp = log_sum_exp,
                                        .d_q = d_q.data(),
                                        .d_k = d_k.data(),
                                        .d_v = d_v.data(),
                                        .scratch = scratch.data()});
    };
  };
  compare(state, any.stream(), backward(any), fixed.stream(), backward(fixed));
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->Iterations(bench::repetitions(11))
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  int gpus = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&gpus); status != cudaSuccess || gpus == 0) {
    std::fprintf(stderr, "bench_cuda_changes needs a GPU: %s.\n",
                 status == cudaSuccess ? "there is none" : cudaGetErrorString(status));
    return 1;
  }
  using namespace fsdpbench;  // NOLINT: all of it is above
  add("attention_backward_in_any_order", attention_backward_in_any_order);
  add("residual_added_by_the_product", residual_added_by_the_product);
  add("rotary_of_queries_and_keys_at_once", rotary_of_queries_and_keys_at_once);
  add("rows_of_logits_apart", rows_of_logits_apart);
  benchmark::Initialize(&argc, argv);
  bench::add_library_context();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
