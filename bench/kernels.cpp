// Numeric kernels of the CPU backend on one thread: the GEMM rate, memory-bound kernels beside memcpy, and a decoder
// block beside the raw GEMM rate, each ratio measured interleaved in the same run.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cpu/kernels/cpu_kernels.h"
#include "backend/kernels.h"
#include "base/clock.h"
#include "model/model.h"
#include "plan/model_shapes.h"

namespace fsdpbench {
namespace {

using backend::Kernels;
using Buffer = std::vector<std::byte>;

constexpr std::int64_t kWidth = 1024;

float* floats(Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

/// Small numbers, valid in either dtype; never denormal.
Buffer filled(std::int64_t count, DType dtype) {
  Buffer buffer(static_cast<std::size_t>(count * size_of(dtype)));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7919 % 255 - 127) / 2048.0F;
  backend::cpu::make_cpu_kernels()->cast(values.data(), {buffer.data(), dtype}, count, 1.0F);
  return buffer;
}

double seconds_of(const std::function<void()>& work) {
  const std::int64_t begin = now_ns();
  work();
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Operands of y = x * w^T of a linear layer.
struct RawGemm {
  std::int64_t rows, in, out;
  DType dtype;
  Buffer x = filled(rows * in, dtype), w = filled(out * in, dtype), y = filled(rows * out, dtype);

  double flops() const { return 2.0 * static_cast<double>(rows * in * out); }
  void run(Kernels& kernels) {
    kernels.gemm({.a = x.data(),
                  .b = w.data(),
                  .c = y.data(),
                  .m = rows,
                  .n = out,
                  .k = in,
                  .transpose_b = true,
                  .input_dtype = dtype,
                  .output_dtype = dtype});
  }
};

DType dtype_of(const benchmark::State& state) { return static_cast<DType>(state.range(0)); }

void label(benchmark::State& state) { state.SetLabel(std::string(to_string(dtype_of(state)))); }

void gemm(benchmark::State& state) {
  label(state);
  const auto kernels = backend::cpu::make_cpu_kernels();
  RawGemm product{state.range(1), state.range(2), state.range(3), dtype_of(state)};
  product.run(*kernels);
  for (auto _ : state) product.run(*kernels);
  state.counters["GFLOP/s"] =
      benchmark::Counter(product.flops() * static_cast<double>(state.iterations()) * 1e-9, benchmark::Counter::kIsRate);
}
BENCHMARK(gemm)->ArgNames({"dtype", "rows", "in", "out"})->ArgsProduct({{0, 1}, {1024}, {1024}, {1024, 2816}});
BENCHMARK(gemm)->ArgNames({"dtype", "rows", "in", "out"})->ArgsProduct({{0, 1}, {256}, {128}, {128, 352}});

/// One memory-bound kernel; `bytes` are those it must read and write.
struct MemoryBound {
  const char* name;
  std::int64_t tensors;  ///< read or written once each
  void (*run)(Kernels& kernels, std::vector<Buffer>& t, std::int64_t rows, DType dtype);
  bool masters = false;  ///< works on fp32 masters alone
};

const MemoryBound kMemoryBound[] = {
    {"rms_norm", 2,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       std::vector<float> rstd(static_cast<std::size_t>(rows));
       k.rms_norm({.shape = {rows, kWidth, dtype},
                   .x = t[0].data(),
                   .weight = t[1].data(),
                   .y = t[2].data(),
                   .rstd = rstd.data(),
                   .epsilon = 1e-5F});
     }},
    {"rms_norm_backward", 4,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       const std::vector<float> rstd(static_cast<std::size_t>(rows), 1.0F);
       k.rms_norm_backward({.shape = {rows, kWidth, dtype},
                            .d_y = t[0].data(),
                            .x = t[1].data(),
                            .weight = t[2].data(),
                            .rstd = rstd.data(),
                            .d_x = t[3].data(),
                            .d_weight = {t[4].data(), dtype}});
     }},
    {"swiglu", 3,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       k.swiglu({.shape = {rows, kWidth, dtype}, .gate = t[0].data(), .up = t[1].data(), .y = t[2].data()});
     }},
    {"swiglu_backward", 5,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       k.swiglu_backward({.shape = {rows, kWidth, dtype},
                          .d_y = t[0].data(),
                          .gate = t[1].data(),
                          .up = t[2].data(),
                          .d_gate = t[3].data(),
                          .d_up = t[4].data()});
     }},
    {"rotary", 2,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       k.rotary({1, rows, kWidth / 64, 0, 64, dtype}, t[0].data(), nullptr, 1e4F, false);
     }},
    {"add", 3,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       k.add(t[0].data(), t[1].data(), t[0].data(), rows * kWidth, dtype);
     }},
    {"scale_in_place", 2,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       k.cast({t[0].data(), dtype}, {t[0].data(), dtype}, rows * kWidth, 0.9999F);
     }},
    {"cross_entropy", 2,
     [](Kernels& k, auto& t, auto rows, auto dtype) {
       const std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), 3);
       float loss = 0;
       k.cross_entropy({.part = backend::VocabularyPart::all(kWidth),
                        .rows = rows,
                        .dtype = dtype,
                        .logits = t[0].data(),
                        .targets = targets.data(),
                        .loss = &loss});
     }},
    {"adamw", 7,
     [](Kernels& k, auto& t, auto rows, auto) {
       k.adamw({.count = rows * kWidth,
                .parameter = floats(t[0]),
                .gradient = floats(t[1]),
                .first_moment = floats(t[2]),
                .second_moment = floats(t[3])},
               {.learning_rate = 1e-3F, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F});
     },
     true},
    {"sum_of_squares", 1,
     [](Kernels& k, auto& t, auto rows, auto) {
       double sum = 0;
       k.sum_of_squares(floats(t[0]), rows * kWidth, 1.0, &sum, true);
     },
     true},
};

/// Counter `ratio`: the kernel's bytes a second as a fraction of memcpy's (which reads one and writes one).
void memory_bound(benchmark::State& state, const MemoryBound& kernel) {
  label(state);
  const DType dtype = dtype_of(state);
  const std::int64_t rows = state.range(1);
  const auto kernels = backend::cpu::make_cpu_kernels();
  std::vector<Buffer> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back(filled(rows * kWidth, dtype));
  std::memset(tensors[3].data(), 0, tensors[3].size());  // AdamW's second moment is never negative
  Buffer source = filled(rows * kWidth, dtype), target = source;
  const double tensor_bytes = static_cast<double>(source.size());
  std::vector<double> kernel_s, copy_s;
  for (auto _ : state) {
    copy_s.push_back(seconds_of([&] { std::memcpy(target.data(), source.data(), source.size()); }));
    benchmark::DoNotOptimize(target.data());
    kernel_s.push_back(seconds_of([&] { kernel.run(*kernels, tensors, rows, dtype); }));
    state.SetIterationTime(kernel_s.back());
  }
  const double rate = static_cast<double>(kernel.tensors) * tensor_bytes / median(kernel_s);
  const double copy_rate = 2.0 * tensor_bytes / median(copy_s);
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["memcpy GB/s"] = copy_rate * 1e-9;
  state.counters["ratio"] = rate / copy_rate;
}

const int kRegistered = [] {
  for (const MemoryBound& kernel : kMemoryBound) {
    benchmark::RegisterBenchmark((std::string("memory_bound/") + kernel.name).c_str(), memory_bound, kernel)
        ->ArgNames({"dtype", "rows"})
        ->ArgsProduct({kernel.masters ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, 1}, {8192}})
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  return 0;
}();

/// One decoder block with all that it touches.
class DecoderBlock {
 public:
  explicit DecoderBlock(model::BatchShape batch) : config_(shape()) {
    const plan::ModelShapes shapes = plan::model_shapes(config_);
    decoder_ = model::make_model(config_, shapes, batch);
    const plan::ModuleSizes sizes = decoder_->sizes()[1];
    flops_ = sizes.forward_flops + sizes.backward_flops;
    for (const int index : shapes.modules[1].parameters) {
      const std::int64_t count = shapes.parameters[static_cast<std::size_t>(index)].numel();
      parameters_.push_back(filled(count, batch.dtype));
      gradients_.push_back(filled(count, batch.dtype));
    }
    for (const Buffer& parameter : parameters_) parameter_views_.push_back(parameter.data());
    for (Buffer& gradient : gradients_) gradient_views_.push_back(gradient.data());
    input_ = filled(batch.rows() * kWidth, batch.dtype);
    output_ = stream_ = input_;
    saved_.resize(static_cast<std::size_t>(sizes.saved_bytes));
    workspace_.resize(
        static_cast<std::size_t>(std::max(sizes.forward_workspace_bytes, sizes.backward_workspace_bytes)));
    call_.parameters = parameter_views_;
    call_.gradients = gradient_views_;
    call_.input = input_.data();
    call_.output = output_.data();
    call_.saved = saved_.data();
    call_.workspace = workspace_.data();
    call_.d_stream = stream_.data();
  }

  double flops() const { return flops_; }
  std::int64_t ffn_width() const { return config_.ffn_width; }
  /// Seconds of forward and backward.
  double run() {
    stream_ = input_;  // the backward overwrites it; outside the time
    return seconds_of([&] {
      decoder_->forward(1, *kernels_, call_);
      decoder_->backward(1, *kernels_, call_);
    });
  }

 private:
  static config::Model shape() {
    config::Model shape;
    shape.layers = 1;
    shape.width = kWidth;
    shape.heads = 16;
    shape.kv_heads = 8;
    shape.ffn_width = 2816;
    return shape;
  }

  config::Model config_;
  std::unique_ptr<model::Model> decoder_;
  std::unique_ptr<Kernels> kernels_ = backend::cpu::make_cpu_kernels();
  double flops_ = 0;
  std::vector<Buffer> parameters_, gradients_;
  std::vector<const std::byte*> parameter_views_;
  std::vector<std::byte*> gradient_views_;
  Buffer input_, output_, stream_, saved_, workspace_;
  model::ModuleCall call_;
};

/// Forward and backward of one decoder block. Counter `ratio`: its FLOP/s as a fraction of the raw GEMM rate of the
/// block's own largest product, one product timed before each block.
void decoder_block(benchmark::State& state) {
  label(state);
  const model::BatchShape batch{state.range(1), state.range(2), dtype_of(state)};
  DecoderBlock block(batch);
  const auto kernels = backend::cpu::make_cpu_kernels();
  RawGemm product{batch.rows(), kWidth, block.ffn_width(), batch.dtype};
  product.run(*kernels);
  block.run();
  std::vector<double> raw_s, block_s;
  for (auto _ : state) {
    raw_s.push_back(seconds_of([&] { product.run(*kernels); }));
    block_s.push_back(block.run());
    state.SetIterationTime(block_s.back());
  }
  const double block_rate = block.flops() / median(block_s);
  const double raw_rate = product.flops() / median(raw_s);
  state.counters["GFLOP/s"] = block_rate * 1e-9;
  state.counters["GEMM GFLOP/s"] = raw_rate * 1e-9;
  state.counters["ratio"] = block_rate / raw_rate;
}
BENCHMARK(decoder_block)
    ->ArgNames({"dtype", "batch", "seq"})
    ->ArgsProduct({{0, 1}, {1}, {256, 1024}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdpbench
