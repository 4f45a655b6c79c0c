#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "config/cluster.h"
#include "config/run_config.h"
#include "plan/module_sizes.h"
#include "plan/module_work.h"
#include "plan/plan.h"
#include "schedule/op.h"

namespace fsdpbench::clock {

/// Work of an op, in the quantities that its time is modelled from.
struct OpWork {
  enum class Unit : std::uint8_t {
    wire_bytes,  ///< a collective: that a rank sends round the ring; `fixed` are its hops
    flops,       ///< of matrix products and attention
    bytes,       ///< all else on a device: of the buffers that it touches; `fixed` is 1
    pcie_bytes,  ///< copies between device and host; `fixed` is 1
    host_bytes,  ///< as bytes, of what the host computes
  };
  Unit unit = Unit::bytes;
  double fixed = 0;
  double amount = 0;
};

/// The enumerator's own name.
std::string_view to_string(OpWork::Unit unit);
/// Bytes of the buffers that an op of `schedule` reads and writes.
double buffer_bytes(const schedule::Schedule& schedule, const schedule::Op& op);

/// `op`: with work, one of `schedule`. `sizes`: of each module.
OpWork work_of(const schedule::Op& op, const schedule::Schedule& schedule, const plan::Groups& groups,
               const std::vector<plan::ModuleSizes>& sizes);

}  // namespace fsdpbench::clock

/// Time of an op on one GPU, from the GPU's facts and the shapes of what it computes. Pure functions of plain data.
///
/// One function serves all shapes and GPUs; its constants are fits to published kernel measurements (compute_cost.cpp
/// names them), not to training runs. What a whole training loses beside that (clocks under load, kernels that are not
/// the best for their shape) is one number, Framework::efficiency, of products and attention.
namespace fsdpbench::clock {

/// Rates of one GPU.
struct GpuRates {
  double product_flops = 0;        ///< FLOP/s that the best large matrix products reach in the compute dtype
  double fp8_product_flops = 0;    ///< the same of fp8; 0: it has none
  double peak_flops = 0;           ///< peak in the compute dtype: attention kernels are stated as parts of it
  double memory_bytes_per_s = 0;   ///< read and written together, as a copy achieves it
  int sms = 0;                     ///< multiprocessors, or compute units
  config::MeasuredGpu measured{};  ///< stands for the first and third, if it was
  double apart_fraction =
      1;  ///< of the copy's rate, what copies of units and the head's kernels that are not joined achieve
};

/// Rates of a cluster's GPU, computing in `dtype`; fp32 is multiplied as fp32, not tf32.
GpuRates gpu_rates(const config::Cluster& cluster, DType dtype);

/// Generations of fused attention: how much of the peak they reach is a matter of the GPU they were written for.
enum class Attention : std::uint8_t {
  flash1,   ///< FlashAttention 1 and the Triton kernel of its time
  flash2,   ///< FlashAttention 2: what PyTorch's flash back end is
  current,  ///< kernels written for the GPU at hand: FlashAttention 3, cuDNN's, Transformer Engine's
};

/// Share that published trainings reach, the median of those that docs/published.md calibrates by. It is
/// also the default of simulate.efficiency (config::Efficiency).
inline constexpr double kTypicalEfficiency = 0.80;

/// Use of the GPU by a training.
struct Framework {
  bool compiled = false;  ///< neighbouring memory-bound kernels are one (torch.compile)
  Attention attention = Attention::flash2;
  bool fused_loss = false;                 ///< the loss of the logits is one kernel, also if nothing else is compiled
  bool eager_loss = false;                 ///< the head's kernels are not joined, also if those of blocks are
  bool fused_optimizer = true;             ///< one kernel an update; else one an operation, with 2.5 times the bytes
  double efficiency = kTypicalEfficiency;  ///< of products and attention, beside what shapes say; 1: the best kernels
};

/// Other use of the GPU meanwhile.
struct GpuLoad {
  int sms = 0;                    ///< multiprocessors that running collectives hold
  double memory_bytes_per_s = 0;  ///< bandwidth that they take
};

/// The load of collectives that move `bus_bytes_per_s` (nccl-tests' bus bandwidth) on a cluster's GPU: each byte that
/// arrives is written, and read again to be sent on or added. They hold SMs in proportion to the rate, at the node's
/// own all of cluster.intra.collective_sms.
GpuLoad beside_collective(const config::Cluster& cluster, double bus_bytes_per_s);

/// Which pass of a module.
enum class Pass : std::uint8_t { forward, recompute, backward };

/// Times of one GPU.
class ComputeCost {
 public:
  /// `dtype`: of activations; `fp8`: blocks' products are fp8, scaled by `recipe`.
  ComputeCost(const GpuRates& gpu, const Framework& framework, DType dtype, bool fp8 = false,
              config::Fp8Recipe recipe = config::Fp8Recipe::delayed);

  /// Seconds of the products [m, k] x [k, n] of the compute dtype (or fp8): tiles over the SMs in whole waves, a k that
  /// fills the pipeline, and never faster than operands pass through memory. Those of one launch share its waves.
  double product_seconds(const plan::Product& product, bool fp8 = false, const GpuLoad& beside = {}) const;
  /// Seconds of one fused attention of at least one head; the backward has 2.5 times the FLOPs.
  double attention_seconds(const plan::AttentionWork& work, bool backward, const GpuLoad& beside = {}) const;
  /// Seconds of the optimizer's update that reads and writes `bytes` if it is one kernel.
  double update_seconds(double bytes, const GpuLoad& beside = {}) const;
  /// Seconds of a kernel that only moves bytes, read and written; of one that a framework calls by itself.
  double stream_seconds(double bytes, const GpuLoad& beside = {}) const;
  double apart_seconds(double bytes, const GpuLoad& beside = {}) const {
    return stream_seconds(bytes / gpu_.apart_fraction, beside);
  }
  /// Seconds of one pass of a module: its kernels one after another.
  /// `share` of a recomputation is done (fsdp.recompute_share).
  double module_seconds(const plan::ModuleWork& work, Pass pass, const GpuLoad& beside = {}, double share = 1) const;
  /// Kernels of such a pass.
  int launches(const plan::ModuleWork& work, Pass pass) const;

 private:
  struct Kernels;
  Kernels kernels_of(const plan::ModuleWork& work, Pass pass, const GpuLoad& beside) const;

  GpuRates gpu_;
  Framework framework_;
  double element_;
  bool fp8_;
  config::Fp8Recipe recipe_;
};

/// Seconds by op of `schedule`: what runs on the compute and copy lanes. Collectives, copies over PCIe and what the
/// host does take none here. `work`: by module, for one microbatch; `share`: fsdp.recompute_share.
std::vector<double> compute_seconds(const schedule::Schedule& schedule, const std::vector<plan::ModuleWork>& work,
                                    const ComputeCost& cost, const GpuLoad& beside = {}, double share = 1);

/// Factors by which ops of `schedule` are slower while collectives run beside them all of the time: products
/// lose the SMs that the collectives hold and with them, often, a whole wave; what moves bytes loses the bandwidth. At
/// least 1; 1 for collectives. An op that shares only a part of its time loses only in that part: at a rate of
/// 1/slow-down.
std::vector<double> slowdown_beside_collective(const schedule::Schedule& schedule,
                                               const std::vector<plan::ModuleWork>& work, const ComputeCost& cost,
                                               const GpuLoad& beside);

}  // namespace fsdpbench::clock
