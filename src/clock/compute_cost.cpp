#include "clock/compute_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/enum_table.h"
#include "clock/collective_kinds.h"
#include "clock/emulated_times.h"

namespace fsdpbench::clock {

std::string_view to_string(OpWork::Unit unit) {
  constexpr EnumNames<OpWork::Unit> kNames{"wire_bytes", "flops", "bytes", "pcie_bytes", "host_bytes"};
  return kNames[unit];
}

OpWork work_of(const schedule::Op& op, const schedule::Schedule& schedule, const plan::Groups& groups,
               const std::vector<plan::ModuleSizes>& sizes) {
  if (op.is_collective()) {
    const CollectiveMessage message = message_of(op, groups);
    return {OpWork::Unit::wire_bytes, static_cast<double>(message.hops()),
            static_cast<double>(message.bytes) * message.share()};
  }
  if (const double flops = flops_of(op, sizes); flops != 0) return {OpWork::Unit::flops, 0, flops};
  if (const auto* copy = std::get_if<schedule::Transfer>(&op.work)) {
    return {OpWork::Unit::pcie_bytes, 1, static_cast<double>(copy->bytes)};
  }
  const bool on_host = op.lane == Lane::host_compute;
  return {on_host ? OpWork::Unit::host_bytes : OpWork::Unit::bytes, 1, buffer_bytes(schedule, op)};
}

double buffer_bytes(const schedule::Schedule& schedule, const schedule::Op& op) {
  double bytes = 0;
  const schedule::Operands operands = op.operands();
  const auto* sum = std::get_if<schedule::Accumulate>(&op.work);
  for (const schedule::BufferList* list : {&operands.reads, &operands.writes}) {
    for (const schedule::BufferId id : *list) {
      const schedule::Buffer& buffer = schedule.buffers[id];
      // A unit's sum reads only its own part of a bucket.
      const bool part = sum != nullptr && id == sum->from;
      const std::int64_t own = part ? sum->count * size_of(buffer.dtype) : buffer.bytes;
      bytes += static_cast<double>(std::min(own, buffer.bytes));
    }
  }
  return bytes;
}
namespace {

/// Output tiles that GEMM libraries choose between, and how near to the best rate a full wave of them comes.
struct Tile {
  std::int64_t m, n;
  double rate;
};
constexpr std::array<Tile, 4> kTiles{{{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.92}, {128, 64, 0.75}}};
/// Depth of k that a tile's beginning and end are worth. With it an A100 gives 233, 258 and 264 TFLOP/s for fp16
/// squares of 4096, 8192 and 16384 (measured: 228, 254, 257), an H100 1.25 and 1.30 PFLOP/s for fp8 squares of 4096 and
/// 8192 (1.21, 1.29): Azure/AI-benchmarking-guide.
constexpr double kFillDepth = 384;
/// From one kernel's end to the next one's full speed, on the GPU.
constexpr double kKernelGap = 2.5e-6;

/// Part of the peak that forward and backward together reach on long sequences of heads of 128, and the length at which
/// they reach half of that. Heads of 64 fill the tensor cores less: `of_64` of that part.
struct AttentionRate {
  double fraction;
  double half_length;
  double of_64;
};
/// On GPUs up to the A100 (peak below 500 TFLOP/s): FlashAttention 1 100, 2 up to 189 of 312 TFLOP/s at 16k (T. Dao,
/// FlashAttention-2, 2023, causal, forward + backward). On later ones the same instructions reach a smaller part: 2 had
/// 335 of 989 TFLOP/s on an H100 there, but trainings on long sequences show 0.25 (profiles/published, T129, whose
/// attention this sets); 3 550 of 989 (J. Shah et al., FlashAttention-3, 2024). Heads of 64 against 128 at 16k, forward
/// causal: 2 299 of 335 TFLOP/s forward and 291 of 322 backward, 3 473 of 616 and 474 of 561 (the same paper, figures 5
/// and 6); 1 as the Triton kernel of its time: as fast on an A100, by llm-foundry's trainings of 125 and 350 million
/// parameters (heads of 64) beside its larger ones (heads of 128) at 512 to 65536 tokens.
AttentionRate attention_rate(Attention kernel, double peak_flops) {
  const bool ampere = peak_flops < 500e12;
  switch (kernel) {
    case Attention::flash1: return {ampere ? 0.34 : 0.20, 500, ampere ? 1.0 : 0.84};
    case Attention::flash2: return {ampere ? 0.63 : 0.25, ampere ? 600.0 : 900.0, 0.90};
    case Attention::current: break;
  }
  return {ampere ? 0.63 : 0.56, ampere ? 600.0 : 1200.0, ampere ? 0.90 : 0.82};
}

/// Bytes that passes which bring operands of a product to fp8 read and write: for each element of the input or weight,
/// and of the output's gradient. (torchao, float8/float8_linear.py: by tensor, backward has the bytes of forward; by
/// row, the numbers themselves.)
struct Casts {
  double operand = 0, gradient = 0;
  int kernels = 0;
};
constexpr double kScaleOf32 = 1.0 / 32;  // MXFP8: a byte for 32 numbers

/// `element`: bytes of a number before. A cast reads it and writes a byte. By tensor another
/// pass looks for the largest number first.
Casts casts_of_forward(config::Fp8Recipe recipe, double element) {
  using config::Fp8Recipe;
  switch (recipe) {
    case Fp8Recipe::tensorwise: return {2 * element + 1, 0, 4};
    case Fp8Recipe::mx: return {element + 1 + kScaleOf32, 0, 2};
    case Fp8Recipe::delayed:
    case Fp8Recipe::rowwise: break;  // a row stays in the multiprocessor between its largest number and its cast
  }
  return {element + 1, 0, 2};
}

/// The gradient is an operand of two products, the others of one more each; all of these want the other order in
/// memory. By tensor the bytes of forward are only transposed. By row each is cast again with the scales of its
/// columns, whose largest numbers take a pass of their own.
Casts casts_of_backward(config::Fp8Recipe recipe, double element) {
  using config::Fp8Recipe;
  switch (recipe) {
    case Fp8Recipe::tensorwise: return {2, 2 * element + 1 + 2, 5};
    case Fp8Recipe::rowwise: return {2 * element + 1, element + 1 + 2 * element + 1, 7};
    case Fp8Recipe::mx: return {element + 1 + kScaleOf32, 2 * (element + 1 + kScaleOf32), 2};
    case Fp8Recipe::delayed: break;
  }
  return {element + 1, 2 * (element + 1), 2};
}

/// Products that are scaled by row run CUTLASS's kernel, the others cuBLAS's, which most of its shapes reach 90 to 100
/// % of on an H100 (pytorch/pytorch, issue 147971): the middle of that.
constexpr double kRowwiseRate = 0.95;

/// Whether rows of so many numbers of two bytes begin where kernels of 16 bytes a load cannot.
bool odd_row(std::int64_t numbers) { return numbers % 8 != 0; }

double ceil_div(std::int64_t a, std::int64_t b) { return static_cast<double>((a + b - 1) / b); }

/// Elements moved by a copy between two buffers, one of which may be larger than what is copied.
double copied_bytes(const schedule::Schedule& schedule, const schedule::LayoutCopy& copy) {
  const auto& from = schedule.buffers[copy.from];
  const auto& to = schedule.buffers[copy.to];
  const std::int64_t elements = std::min(from.bytes / size_of(from.dtype), to.bytes / size_of(to.dtype));
  return static_cast<double>(elements * (size_of(from.dtype) + size_of(to.dtype)));
}

double touched_bytes(const schedule::Schedule& schedule, const schedule::Op& op) {
  if (const auto* copy = std::get_if<schedule::LayoutCopy>(&op.work)) return copied_bytes(schedule, *copy);
  return buffer_bytes(schedule, op);
}

double op_seconds(const schedule::Schedule& schedule, const schedule::Op& op, const std::vector<plan::ModuleWork>& work,
                  const ComputeCost& cost, const GpuLoad& beside, double share) {
  using schedule::OpKind;
  const bool on_gpu = op.lane != Lane::host_compute && !op.is_transfer();
  if (!op.has_work() || op.is_collective() || !on_gpu) return 0;
  using OfWork = plan::ModuleWork::Pass;
  const auto module = [&](Pass pass, OfWork of_work) {
    const plan::ModuleWork& module_work = work[op.module];
    return cost.module_seconds(module_work, pass, beside, share) * module_work.share(of_work, schedule::part_of(op));
  };
  switch (op.kind) {
    case OpKind::forward: return module(Pass::forward, OfWork::forward);
    case OpKind::recompute: return module(Pass::recompute, OfWork::recompute);
    case OpKind::backward: return module(Pass::backward, OfWork::backward);
    case OpKind::optimizer: return cost.update_seconds(touched_bytes(schedule, op), beside);
    default: return cost.apart_seconds(touched_bytes(schedule, op), beside);
  }
}

}  // namespace

/// Sums over the kernels of a pass.
struct ComputeCost::Kernels {
  double seconds = 0;
  int count = 0;

  void add(double more_seconds, std::int64_t more) {
    seconds += more_seconds;
    count += static_cast<int>(more);
  }
};

GpuRates gpu_rates(const config::Cluster& cluster, DType dtype) {
  const config::ClusterGpu& gpu = cluster.gpu;
  const double peak = (dtype == DType::bf16 ? gpu.peak.bf16 : gpu.peak.fp32) * 1e12;
  return {.product_flops = peak * gpu.gemm_fraction,
          .fp8_product_flops = gpu.peak.fp8 * gpu.fp8_gemm_fraction * 1e12,
          .peak_flops = peak,
          .memory_bytes_per_s = gpu.memory_copy_gb_per_s * 1e9,
          .sms = gpu.sms};
}

GpuLoad beside_collective(const config::Cluster& cluster, double bus_bytes_per_s) {
  // A channel is a block on one multiprocessor; a slower fabric gets by with fewer.
  const double part = std::min(1.0, bus_bytes_per_s / (cluster.intra.all_gather_gb_per_s * 1e9));
  return {.sms = static_cast<int>(std::ceil(part * cluster.intra.collective_sms)),
          .memory_bytes_per_s = 2 * bus_bytes_per_s};
}

ComputeCost::ComputeCost(const GpuRates& gpu, const Framework& framework, DType dtype, bool fp8,
                         config::Fp8Recipe recipe)
    : gpu_(gpu), framework_(framework), element_(static_cast<double>(size_of(dtype))), fp8_(fp8), recipe_(recipe) {}

double ComputeCost::product_seconds(const plan::Product& p, bool fp8, const GpuLoad& beside) const {
  fp8 = fp8 && gpu_.fp8_product_flops > 0;
  const double of_recipe = fp8 && recipe_ == config::Fp8Recipe::rowwise ? kRowwiseRate : 1;
  const double rate = (fp8 ? gpu_.fp8_product_flops : gpu_.product_flops) * of_recipe * framework_.efficiency;
  const auto sms = static_cast<double>(std::max(gpu_.sms - beside.sms, 1));
  const auto launches = static_cast<double>(p.launches);
  const double together = static_cast<double>(p.count) / launches;  // of one launch
  double best = HUGE_VAL;
  if (gpu_.measured.product_tflops > 0 && !fp8) {
    const config::MeasuredGpu& measured = gpu_.measured;
    const double deep = measured.product_tflops / (1 + measured.product_fill / static_cast<double>(p.k));
    const double tflops = odd_row(p.n)                   ? measured.odd_output_tflops
                          : odd_row(p.m) || odd_row(p.k) ? measured.odd_input_tflops
                                                         : deep;
    best = p.flops() / launches / (tflops * 1e12) * gpu_.sms / sms;
  } else
    for (const Tile& tile : kTiles) {
      const double tiles = ceil_div(p.m, tile.m) * ceil_div(p.n, tile.n) * together;
      const double flops = 2.0 * static_cast<double>(tile.m * tile.n) * (static_cast<double>(p.k) + kFillDepth);
      best = std::min(best, std::ceil(tiles / sms) * flops * gpu_.sms / (rate * tile.rate));
    }
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double inputs = m * k + k * n, outputs = m * n;
  const double bytes = together * (inputs * (fp8 ? 1 : element_) + outputs * element_);
  const double memory = bytes / std::max(gpu_.memory_bytes_per_s - beside.memory_bytes_per_s, 1.0);
  return launches * (std::max(best, memory) + kKernelGap);
}

double ComputeCost::attention_seconds(const plan::AttentionWork& work, bool backward, const GpuLoad& beside) const {
  const AttentionRate rate = attention_rate(framework_.attention, gpu_.peak_flops);
  const double span = 2 * work.mean_span();
  const double head = std::min(1.0, std::pow(static_cast<double>(work.head_dim) / 128, -std::log2(rate.of_64)));
  if (gpu_.measured.attention_64_tflops > 0) {
    const config::MeasuredGpu& measured = gpu_.measured;
    const double wide = std::clamp(std::log2(static_cast<double>(work.head_dim) / 64), 0.0, 1.0);
    const double tflops = std::lerp(measured.attention_64_tflops, measured.attention_128_tflops, wide) * span /
                          (span + measured.attention_half_length);
    const double sms = std::max(gpu_.sms - beside.sms, 1);
    return (backward ? 2.5 : 1) * work.flops() / (tflops * 1e12) * gpu_.sms / sms + kKernelGap;
  }
  const double flops_per_s = gpu_.peak_flops * rate.fraction * framework_.efficiency * head * span /
                             (span + rate.half_length) * std::max(gpu_.sms - beside.sms, 1) / gpu_.sms;
  return (backward ? 2.5 : 1) * work.flops() / flops_per_s + kKernelGap;
}

double ComputeCost::stream_seconds(double bytes, const GpuLoad& beside) const {
  const double left = std::max(gpu_.memory_bytes_per_s - beside.memory_bytes_per_s, gpu_.memory_bytes_per_s / 4);
  return bytes == 0 ? 0 : bytes / left + kKernelGap;
}

double ComputeCost::update_seconds(double bytes, const GpuLoad& beside) const {
  const double passes = gpu_.measured.pass_fraction;
  const double of_copy = gpu_.apart_fraction == 1 || passes == 0 ? gpu_.apart_fraction : passes;
  return stream_seconds((framework_.fused_optimizer ? 1.0 : 2.5) * bytes / of_copy, beside);
}

ComputeCost::Kernels ComputeCost::kernels_of(const plan::ModuleWork& work, Pass pass, const GpuLoad& beside) const {
  Kernels kernels;
  const bool backward = pass == Pass::backward;
  using OfWork = plan::ModuleWork::Pass;
  const std::vector<plan::Product> products = work.products_of(pass == Pass::recompute ? OfWork::recompute
                                                               : backward              ? OfWork::backward
                                                                                       : OfWork::forward);
  for (std::size_t i = 0; i < products.size(); ++i) {
    const plan::Product& p = products[i];
    if (p.count == 0) continue;                                                                 // all outputs are kept
    const bool fp8 = fp8_ && work.kind == plan::ModuleKind::block && i < work.products.size();  // not of adapters
    if (!backward) kernels.add(product_seconds(p, fp8, beside), p.launches);
    for (const plan::Product& gradient : backward ? p.backward() : std::vector<plan::Product>()) {
      kernels.add(product_seconds(gradient, fp8, beside), p.launches);
    }
    if (fp8) {
      const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
      const Casts casts = backward ? casts_of_backward(recipe_, element_) : casts_of_forward(recipe_, element_);
      const double bytes = casts.operand * (m * k + k * n) + casts.gradient * m * n;
      kernels.add(stream_seconds(bytes * static_cast<double>(p.count), beside), casts.kernels * p.launches);
    }
  }
  const bool kept = pass == Pass::recompute && work.attention.kept;
  if (work.attention.heads > 0 && !kept) kernels.add(attention_seconds(work.attention, backward, beside), 1);
  const plan::Passes& passes = backward ? work.backward : pass == Pass::recompute ? work.recompute : work.forward;
  const bool head = work.kind == plan::ModuleKind::head;
  const bool fused = head && framework_.eager_loss ? false : framework_.compiled || (head && framework_.fused_loss);
  // A fused loss leaves the gradient where the logits were.
  const bool done = head && backward && framework_.fused_loss;
  const double elements = done ? 0 : (fused ? passes.fused : passes.eager) + (backward ? 2 * work.table_elements : 0);
  const double joined = gpu_.measured.pass_fraction > 0 ? gpu_.measured.pass_fraction : 1;
  const bool apart = !fused && gpu_.apart_fraction < 1 && (head || gpu_.measured.pass_fraction == 0);
  const double of_copy = apart ? gpu_.apart_fraction : joined;
  kernels.seconds += stream_seconds(elements * element_ / of_copy, beside);
  const int more = fused ? passes.fused_kernels : passes.eager_kernels;
  kernels.seconds += more * kKernelGap;
  kernels.count += more;
  return kernels;
}

double ComputeCost::module_seconds(const plan::ModuleWork& work, Pass pass, const GpuLoad& beside, double share) const {
  const double seconds = kernels_of(work, pass, beside).seconds;
  return pass == Pass::recompute ? share * seconds : seconds;
}

int ComputeCost::launches(const plan::ModuleWork& work, Pass pass) const { return kernels_of(work, pass, {}).count; }

std::vector<double> compute_seconds(const schedule::Schedule& schedule, const std::vector<plan::ModuleWork>& work,
                                    const ComputeCost& cost, const GpuLoad& beside, double share) {
  std::vector<double> seconds;
  seconds.reserve(schedule.ops.size());
  for (const schedule::Op& op : schedule.ops) seconds.push_back(op_seconds(schedule, op, work, cost, beside, share));
  return seconds;
}

std::vector<double> slowdown_beside_collective(const schedule::Schedule& schedule,
                                               const std::vector<plan::ModuleWork>& work, const ComputeCost& cost,
                                               const GpuLoad& beside) {
  const std::vector<double> alone = compute_seconds(schedule, work, cost),
                            with = compute_seconds(schedule, work, cost, beside);
  std::vector<double> slowdown(alone.size(), 1.0);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (alone[i] > 0) slowdown[i] = with[i] / alone[i];
  }
  return slowdown;
}

}  // namespace fsdpbench::clock
