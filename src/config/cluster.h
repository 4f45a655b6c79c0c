#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdpbench::config {

/// Dense peak rates of one GPU by what is multiplied, 1e12 FLOP/s; 0: it has no such units.
struct PeakTflops {
  double fp32 = 0;
  double tf32 = 0;
  double fp16 = 0;
  double bf16 = 0;
  double fp8 = 0;
};

/// GPU that the ranks compute on.
struct ClusterGpu {
  std::string name;
  int sms = 0;            ///< multiprocessors (compute units, cores)
  double memory_gib = 0;  ///< memory of one GPU
  PeakTflops peak;
  double gemm_fraction = 0;         ///< best large 16-bit GEMM as a fraction of its peak
  double fp8_gemm_fraction = 0;     ///< the same of fp8; 0: no fp8
  double memory_gb_per_s = 0;       ///< peak of the memory, 1e9 bytes/s
  double memory_copy_gb_per_s = 0;  ///< achieved by a copy, read + written, 1e9 bytes/s

  std::int64_t memory_bytes() const { return static_cast<std::int64_t>(std::ldexp(memory_gib, 30)); }
};

/// Rates of this GPU's kernels as measured with bf16, 1e12 FLOP/s where nothing else is said, under the power that it
/// has: simulate.efficiency = "measured". All 0: it was not.
struct MeasuredGpu {
  double product_tflops = 0;     ///< products of a large k
  double product_fill = 0;       ///< depth of k that a product's beginning and end are worth
  double odd_output_tflops = 0;  ///< products whose rows of the output are no multiples of 16 bytes
  double odd_input_tflops = 0;   ///< those of which an input's rows are none
  double pass_fraction = 0;   ///< of the rate of a copy, what norms, rotations, activations and PyTorch's updates reach
  double eager_fraction = 0;  ///< of it, what PyTorch's own copies of units and its loss reach, if not compiled
  double eager_odd_output_tflops = 0, eager_odd_input_tflops = 0;  ///< the odd ones as PyTorch calls them
  double attention_64_tflops = 0;  ///< forward and backward together, long sequences, heads of 64
  double attention_128_tflops = 0;
  double attention_half_length = 0;  ///< the length at which half of it is reached
};

enum class IntraKind : std::uint8_t { nvswitch, nvlink, xgmi, pcie, memory };

/// Links between the GPUs of one node. All rates are 1e9 bytes/s a GPU and direction; "achieved" ones are the bus
/// bandwidth (nccl-tests' word: wire bytes / time) of a ring over all GPUs of the node that large messages approach.
struct IntraFabric {
  IntraKind kind = IntraKind::nvswitch;
  double peak_gb_per_s = 0;            ///< of the link
  double nccl_gb_per_s = 0;            ///< what NCCL takes for the link when it chooses an algorithm
  double all_gather_gb_per_s = 0;      ///< achieved
  double reduce_scatter_gb_per_s = 0;  ///< achieved
  double all_reduce_gb_per_s = 0;      ///< achieved by a ring
  double ll128_gb_per_s = 0;           ///< most that NCCL's protocol LL128 achieves; 0: as Simple
  double nvls_gb_per_s = 0;            ///< all-reduce with reduction in the switch, achieved; 0: the switch cannot
  double pair_fraction = 1;            ///< of the achieved rates, where two GPUs of a node take part; not for xgmi
  double quad_fraction = 1;            ///< the same of four; between 2, 4 and 8 or more: interpolated
  double base_latency_us = 0;          ///< of a collective, whatever its size
  double hop_latency_us = 0;           ///< of one step between GPUs of a node
  double ramp_mb = 0;                  ///< 1e6 bytes: how slowly the achieved rate is approached (collective_cost.h)
  int collective_sms = 0;              ///< multiprocessors that a running collective takes
};

enum class InterKind : std::uint8_t { none, infiniband, roce, efa, ethernet };

/// Links between nodes. Rates are 1e9 bytes/s and direction.
struct InterFabric {
  InterKind kind = InterKind::none;
  int nics_per_node = 0;
  double nic_gb_per_s = 0;           ///< line rate of one NIC
  double nic_achieved_gb_per_s = 0;  ///< what large collectives get of it
  double nic_ll128_gb_per_s = 0;     ///< what NCCL's protocol LL128 gets of it; 0: as much
  double base_latency_us = 0;        ///< of a collective that leaves its node, once
  double hop_latency_us = 0;         ///< of one step of a collective from node to node
  int pod_nodes = 0;                 ///< nodes that reach each other at full rate; 0: all
  double oversubscription = 1;       ///< between pods a node gets 1/oversubscription of its rate
  bool asked = false;                ///< nic_achieved_gb_per_s is what was measured where the training runs
  /// Bus bandwidth of 256 MiB over so many whole nodes, as measured, and the parts of it between which measurements
  /// lay, and between which trainings' steps did; all of one length, by nodes. Empty: no such curve is known.
  std::vector<double> curve_nodes, curve_gather, curve_all_reduce, curve_low, curve_high, steps_low, steps_high;
};

/// Host time per issued op; and, for state that lies in its memory (fsdp.cpu_offload), rates a GPU in 1e9
/// bytes/s, 0: not known.
struct ClusterHost {
  double kernel_issue_us = 0;     ///< of one kernel
  double framework_factor = 1.2;  ///< what a framework's host takes over what profiles/systems says of it
  double pcie_gb_per_s = 0;       ///< of copies from and to pinned memory, each direction, as they achieve it
  double memory_gb_per_s = 0;     ///< read and written together by the processors in an update
};

/// A machine that can be simulated: profiles/clusters/NAME.toml, where each figure has its source beside it.
struct Cluster {
  std::string name;   ///< its file's stem
  std::string site;   ///< whose figures replace some of the file's: a table site.NAME of it; empty: none
  std::string title;  ///< for people
  int nodes = 1;      ///< that there are
  int gpus_per_node = 1;
  ClusterGpu gpu;
  IntraFabric intra;
  InterFabric inter;
  ClusterHost host;
  MeasuredGpu measured;

  std::int64_t most_ranks() const { return std::int64_t{nodes} * gpus_per_node; }
};

/// A figure of a curve of `inter` at so many nodes: straight between its points in the logarithms of both.
double at_nodes(const InterFabric& inter, const std::vector<double>& curve, int nodes);

/// Reads a cluster by a file or a name of profiles/clusters; ":SITE" behind it takes the figures of that site, and
/// ":65GB/s" the bus bandwidth that large collectives were measured at between its nodes.
/// profiles/README.md says which keys may be left out. Unknown keys are refused, and so are achieved rates above their
/// peaks. Throws ConfigError with file, line, key, value and what would be valid.
Cluster load_cluster(const std::string& name_or_path);

/// Throws ConfigError, one sentence, unless `ranks` ranks can be placed: within one node, or as whole nodes that exist.
void check_fits(const Cluster& cluster, std::int64_t ranks);

}  // namespace fsdpbench::config
