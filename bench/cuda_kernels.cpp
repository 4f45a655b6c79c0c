// Numeric kernels of the CUDA backend on one GPU. Memory-bound kernels: the bytes a second that they must move, beside
// a device-to-device copy that moves as many, timed in turns (counter `of_copy`). Matrix products: FLOP/s.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/backend.h"
#include "backend/kernels.h"
#include "base/error.h"
#include "library_context.h"
#include "shapes.h"

namespace fsdpbench {
namespace {

using backend::Kernels;
using Tensors = std::vector<std::byte*>;

using bench::kShrink;

constexpr std::int64_t kRows = 16384 / kShrink, kHeadDim = 128 / bench::kShrinkOfHeads;
constexpr std::int64_t kHeads = 16 / bench::kShrinkOfHeads, kWidth = kHeads * kHeadDim;
constexpr std::int64_t kElements = kRows * kWidth;
constexpr std::int64_t kVocab = 50304 / kShrink;
constexpr std::int64_t kRowsOfLogits = kElements / kVocab;

/// One kernel; `tensors` is how many of kElements it must read or write.
struct MemoryBound {
  const char* name;
  double tensors;
  void (*run)(Kernels& k, const Tensors& t, DType dtype);
  bool masters = false;  ///< works on fp32 alone
};

float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
const std::int32_t* integers(const std::byte* memory) { return reinterpret_cast<const std::int32_t*>(memory); }

constexpr auto kAllRows = backend::VocabularyPart::all(kRows);

void sum_embedding(Kernels& k, const Tensors& t, const std::int32_t* tokens, DType d) {
  k.embedding_backward({.shape = {kRows, kWidth, d},
                        .part = kAllRows,
                        .d_y = t[0],
                        .tokens = tokens,
                        .d_table = {t[1], d},
                        .overwrite = true});
}

backend::ParameterUpdate update(const Tensors& t, const backend::ConstElements& gradient) {
  return {.count = kElements,
          .parameter = floats(t[0]),
          .gradient = gradient,
          .first_moment = floats(t[2]),
          .second_moment = floats(t[3])};
}

// t[0..4]: kElements each; t[5]: kRows positive floats; t[6]: the integers below kRows in disorder; t[7]: so,
// but every sixth is 0.
const MemoryBound kMemoryBound[] = {
    {"rms_norm", 2,
     [](Kernels& k, const Tensors& t, DType d) {
       k.rms_norm(
           {.shape = {kRows, kWidth, d}, .x = t[0], .weight = t[1], .y = t[2], .rstd = floats(t[5]), .epsilon = 1e-5F});
     }},
    {"rms_norm_backward", 4,
     [](Kernels& k, const Tensors& t, DType d) {
       k.rms_norm_backward({.shape = {kRows, kWidth, d},
                            .d_y = t[0],
                            .x = t[1],
                            .weight = t[2],
                            .rstd = floats(t[5]),
                            .d_x = t[3],
                            .d_weight = {t[4], d}});
     }},
    // As a block has it: with the norm's output once more.
    {"rms_norm_backward_and_output", 5,
     [](Kernels& k, const Tensors& t, DType d) {
       std::byte* const d_weight = t[2] + kWidth * size_of(d);  // behind the weight
       k.rms_norm_backward({.shape = {kRows, kWidth, d},
                            .d_y = t[0],
                            .x = t[1],
                            .weight = t[2],
                            .rstd = floats(t[5]),
                            .d_x = t[3],
                            .d_weight = {d_weight, d},
                            .y = t[4]});
     }},
    {"rotary", 2,
     [](Kernels& k, const Tensors& t, DType d) {
       k.rotary({4, kRows / 4, kHeads, 0, kHeadDim, d}, t[0], nullptr, 1e4F, false);
     }},
    {"swiglu", 3,
     [](Kernels& k, const Tensors& t, DType d) {
       k.swiglu({.shape = {1, kElements, d}, .gate = t[0], .up = t[1], .y = t[2]});
     }},
    // As a block has it: the product takes the place of its gradient.
    {"swiglu_backward", 6,
     [](Kernels& k, const Tensors& t, DType d) {
       k.swiglu_backward({.shape = {1, kElements, d},
                          .d_y = t[0],
                          .gate = t[1],
                          .up = t[2],
                          .d_gate = t[3],
                          .d_up = t[4],
                          .y = t[0]});
     }},
    {"add", 3, [](Kernels& k, const Tensors& t, DType d) { k.add(t[0], t[1], t[0], kElements, d); }},
    {"relu", 2, [](Kernels& k, const Tensors& t, DType d) { k.relu(t[0], t[1], kElements, d); }},
    {"relu_backward", 3,
     [](Kernels& k, const Tensors& t, DType d) { k.relu_backward(t[0], t[1], t[2], kElements, d); }},
    {"add_bias", 2,
     [](Kernels& k, const Tensors& t, DType d) {
       k.add_bias({kRows, kWidth, d}, t[0], t[1]);
     }},
    {"bias_backward", 1,
     [](Kernels& k, const Tensors& t, DType d) {
       k.bias_backward({kRows, kWidth, d}, t[0], {t[1], d});
     }},
    {"embedding", 2,
     [](Kernels& k, const Tensors& t, DType d) {
       k.embedding({.shape = {kRows, kWidth, d}, .part = kAllRows, .table = t[0], .tokens = integers(t[6]), .y = t[1]});
     }},
    // Zeroes the table, reads the gradients, writes all rows of the table.
    {"embedding_backward", 3, [](Kernels& k, const Tensors& t, DType d) { sum_embedding(k, t, integers(t[6]), d); }},
    // As above for a text, a sixth of which is one token: fewer rows of the table are written.
    {"embedding_backward_of_text", 3 - 1.0 / 6,
     [](Kernels& k, const Tensors& t, DType d) { sum_embedding(k, t, integers(t[7]), d); }},
    {"cross_entropy", 2 * static_cast<double>(kRowsOfLogits* kVocab) / kElements,
     [](Kernels& k, const Tensors& t, DType d) {
       k.cross_entropy({.part = backend::VocabularyPart::all(kVocab),
                        .rows = kRowsOfLogits,
                        .dtype = d,
                        .logits = t[0],
                        .targets = integers(t[6]),
                        .loss = floats(t[5])});
     }},
    {"scale_in_place", 2,
     [](Kernels& k, const Tensors& t, DType d) {
       k.cast({t[0], d}, {t[0], d}, kElements, 0.9999F);
     }},
    {"cast_to_bf16", 1.5,
     [](Kernels& k, const Tensors& t, DType) {
       k.cast({t[0], DType::f32}, {t[1], DType::bf16}, kElements, 1.0F);
     },
     true},
    {"cast_to_fp32", 1.5,
     [](Kernels& k, const Tensors& t, DType) {
       k.cast({t[1], DType::bf16}, {t[0], DType::f32}, kElements, 1.0F);
     },
     true},
    {"accumulate_bf16", 2.5,
     [](Kernels& k, const Tensors& t, DType) {
       k.accumulate({t[1], DType::bf16}, floats(t[0]), kElements, 1.0F);
     },
     true},
    // Copies of per-parameter sharding: 8 ranks' shards of 16 parameters.
    {"copy_runs", 2,
     [](Kernels& k, const Tensors& t, DType d) {
       constexpr std::int64_t kParameters = 16, kRanks = 8, kChunk = kElements / kParameters / kRanks;
       std::vector<backend::CopyRun> runs;
       for (std::int64_t p = 0; p < kParameters; ++p) {
         runs.push_back({p * kChunk, p * kRanks * kChunk, kRanks, kChunk, kParameters * kChunk, kChunk, 0});
       }
       k.copy_runs({t[0], d}, {t[1], d}, runs);
     }},
    {"sum_of_squares", 1,
     [](Kernels& k, const Tensors& t, DType) {
       k.sum_of_squares(floats(t[0]), kElements, 1.0, reinterpret_cast<double*>(t[5]), true);
     },
     true},
    {"mean_squared_error", 3,
     [](Kernels& k, const Tensors& t, DType d) {
       k.mean_squared_error({.count = kElements,
                             .dtype = d,
                             .prediction = t[0],
                             .target = floats(t[1]),
                             .d_prediction = t[2],
                             .loss = floats(t[5])});
     },
     true},
    {"sgd", 3, [](Kernels& k, const Tensors& t, DType) { k.sgd(update(t, floats(t[1])), {.learning_rate = 1e-3F}); },
     true},
    {"adamw_of_bf16", 6.5,
     [](Kernels& k, const Tensors& t, DType) {
       k.adamw(update(t, {t[1], DType::bf16}),
               {.learning_rate = 1e-3F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F});
     },
     true},
    {"adamw", 7,
     [](Kernels& k, const Tensors& t, DType) {
       k.adamw(update(t, floats(t[1])), {.learning_rate = 1e-3F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F});
     },
     true},
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One GPU's compute lane.
class Gpu {
 public:
  explicit Gpu(backend::Device& device) : device_(device) {}

  void run(const std::function<void(Kernels&)>& work) { seconds_of(work); }
  double seconds_of(const std::function<void(Kernels&)>& work) {
    // The host is done before the GPU begins: on an idle lane the time of the launch would count.
    constexpr std::int64_t kHeadStart = 100'000;
    backend::Stamp stamp;
    device_.enqueue(
        Lane::compute, "head start", [](Kernels& k) { k.delay(kHeadStart); }, nullptr);
    device_.enqueue(Lane::compute, "benchmark", work, &stamp);
    device_.synchronize();
    device_.settle_stamps();
    return static_cast<double>(stamp.end_ns - stamp.begin_ns) * 1e-9;
  }
  std::byte* allocate(std::int64_t bytes) {
    memory_.push_back(device_.allocate(bytes, MemoryCategory::activations, Lane::compute));
    return memory_.back();
  }
  /// Small numbers that are not all alike: the power that a product takes, and so its clock, depends on them.
  std::byte* filled(std::int64_t count, DType dtype) {
    constexpr std::int64_t kPattern = 1 << 20;
    std::vector<float> values(static_cast<std::size_t>(std::min(count, kPattern)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 255 + 1) / 2048.0F;
    const auto length = static_cast<std::int64_t>(values.size());
    std::byte* const result = allocate(count * size_of(dtype));
    std::byte* const pattern = device_.allocate(length * 4, MemoryCategory::activations, Lane::compute);
    run([&](Kernels& k) {
      k.upload(values.data(), pattern, length * 4);
      for (std::int64_t done = 0; done < count; done += length) {
        k.cast({pattern, DType::f32}, {result + done * size_of(dtype), dtype}, std::min(length, count - done), 1.0F);
      }
    });
    device_.free(pattern, Lane::compute);
    return result;
  }
  /// Every `zeros`-th is 0; of none: 0.
  std::byte* integers(std::int64_t count, std::int64_t below, std::int64_t zeros = 0) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const bool zero = zeros > 0 && i % zeros == 0;
      values[static_cast<std::size_t>(i)] = zero ? 0 : static_cast<std::int32_t>(i * 7919 % below);
    }
    std::byte* const result = allocate(count * 4);
    run([&](Kernels& k) { k.upload(values.data(), result, count * 4); });
    return result;
  }
  void free_all() {
    for (std::byte* const memory : memory_) device_.free(memory, Lane::compute);
    memory_.clear();
    device_.synchronize();
  }

 private:
  backend::Device& device_;
  std::vector<std::byte*> memory_;
};

void memory_bound(benchmark::State& state, Gpu& gpu, const MemoryBound& kernel, DType dtype) {
  state.SetLabel(std::string(to_string(dtype)));
  const auto bytes = static_cast<std::int64_t>(kernel.tensors * static_cast<double>(kElements * size_of(dtype)));
  Tensors t;
  for (int i = 0; i < 5; ++i) t.push_back(gpu.filled(kElements, dtype));
  t.push_back(gpu.filled(kRows, DType::f32));
  t.push_back(gpu.integers(kRows, kRows));
  t.push_back(gpu.integers(kRows, kRows, 6));
  const std::int64_t copied = bytes / 8 * 4;  // half of the bytes are read, half are written
  std::byte* const source = gpu.filled(copied / 4, DType::f32);
  std::byte* const target = gpu.allocate(copied);
  const auto run = [&](Kernels& k) { kernel.run(k, t, dtype); };
  const auto copy = [&](Kernels& k) { k.cast({source, DType::f32}, {target, DType::f32}, copied / 4, 1.0F); };
  for (int i = 0; i < 3; ++i) {
    gpu.run(run);
    gpu.run(copy);
  }
  std::vector<double> kernel_s, copy_s;
  for (auto _ : state) {
    copy_s.push_back(gpu.seconds_of(copy));
    kernel_s.push_back(gpu.seconds_of(run));
    state.SetIterationTime(kernel_s.back());
  }
  gpu.free_all();
  state.counters["GB/s"] = static_cast<double>(bytes) / median(kernel_s) * 1e-9;
  state.counters["copy GB/s"] = static_cast<double>(bytes) / median(copy_s) * 1e-9;
  state.counters["of_copy"] = median(copy_s) / median(kernel_s);
}

void gemm(benchmark::State& state, Gpu& gpu, DType dtype, std::int64_t size) {
  state.SetLabel(std::string(to_string(dtype)));
  const backend::Gemm product{.a = gpu.filled(size * size, dtype),
                              .b = gpu.filled(size * size, dtype),
                              .c = gpu.allocate(size * size * size_of(dtype)),
                              .m = size,
                              .n = size,
                              .k = size,
                              .transpose_b = true,
                              .input_dtype = dtype,
                              .output_dtype = dtype};
  const auto run = [&](Kernels& k) { k.gemm(product); };
  for (int i = 0; i < 3; ++i) gpu.run(run);
  std::vector<double> seconds;
  for (auto _ : state) {
    seconds.push_back(gpu.seconds_of(run));
    state.SetIterationTime(seconds.back());
  }
  gpu.free_all();
  const auto n = static_cast<double>(size);
  state.counters["TFLOP/s"] = 2.0 * n * n * n / median(seconds) * 1e-12;
}

void register_all(Gpu& gpu) {
  const auto add = [](const std::string& name, DType dtype, auto&&... arguments) {
    benchmark::RegisterBenchmark((name + "/" + std::string(to_string(dtype))).c_str(), arguments...)
        ->Iterations(bench::repetitions(20))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const MemoryBound& kernel : kMemoryBound) {
      if (kernel.masters && dtype != DType::f32) continue;
      add(std::string("memory_bound/") + kernel.name, dtype,
          [&gpu, &kernel, dtype](benchmark::State& state) { memory_bound(state, gpu, kernel, dtype); });
    }
    for (const std::int64_t size : {2048, 4096, 8192}) {
      add("gemm/" + std::to_string(size), dtype,
          [&gpu, dtype, size](benchmark::State& state) { gemm(state, gpu, dtype, size / kShrink); });
    }
  }
}

}  // namespace
}  // namespace fsdpbench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  fsdpbench::bench::add_library_context();
  try {
    const auto backend = fsdpbench::backend::cuda::make_cuda_backend();
    fsdpbench::backend::BackendOptions options;
    options.set<fsdpbench::backend::CudaOptions>().timer = fsdpbench::backend::Timer::events;
    options.pool_bytes = std::int64_t{2} << 30;
    backend->run(options, [](fsdpbench::backend::RankContext& rank) {
      fsdpbench::Gpu gpu(rank.device);
      fsdpbench::register_all(gpu);
      benchmark::RunSpecifiedBenchmarks();
    });
  } catch (const fsdpbench::ConfigError& error) {
    std::printf("Nothing was measured: %s\n", error.what());
    return 0;
  } catch (const fsdpbench::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
