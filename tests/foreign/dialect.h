#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/module_work.h"
#include "schedule/op.h"

namespace fsdpbench::foreign::corpus {

/// Whose ranges and ops a trace has.
enum class Framework : std::uint8_t { fsdp2, fsdp1, deepspeed, megatron, compiled, ddp, plain };
/// Whose kernels.
enum class Vendor : std::uint8_t { nvidia, nvidia_old, amd };  ///< old: NCCL before 2.19, no fields of collectives

/// How the program that wrote a trace, and its profiler, were set. The defaults are a PyTorch of today on H100s.
struct Dialect {
  Framework framework = Framework::fsdp2;
  Vendor vendor = Vendor::nvidia;
  std::string unit_prefix = "layers.";  ///< "model.layers."
  bool one_stream = false;              ///< all collectives of a rank run on one stream, as PyTorch's did before 2.8
  bool ranges = true;                   ///< record_function ranges of the framework
  bool host_ops = true;                 ///< cpu_op and user_annotation rows
  bool collective_fields = true;        ///< record_param_comms tells elements, dtype and group
  bool sync_rows = false;               ///< cuda_sync rows (enable_cuda_sync_events)
  bool stacks = false;                  ///< python_function rows
  bool arrows = true;                   ///< "ac2g"
  bool memory = false;                  ///< [memory] instants
  bool steps = true;                    ///< ProfilerStep#N
  bool device_ranges = true;            ///< gpu_user_annotation rows
  bool one_queue = false;               ///< collectives in line with computation have a stream of their own
  double slower_beside = 1;             ///< computation takes so many times as long while a collective runs
  std::int64_t loader_ns = 0;           ///< each step begins with so long a wait for its batch
};

/// A kernel, copy or fill, and the op of PyTorch's that launches it.
struct Kernel {
  std::string op;     ///< "aten::mm"
  std::string name;   ///< of the device's row
  double weight = 1;  ///< its share of the schedule's op
  std::string category = "kernel";
  std::string backward;  ///< node of autograd around it: "MmBackward0"; "" in forward
};

/// Kernels of a schedule's op, in order. `work`: of its module, if it computes one; `bf16`: of computation.
std::vector<Kernel> kernels_of(const Dialect& dialect, const schedule::Op& op, const plan::ModuleWork* work, bool bf16);

/// A collective's kernel, by what it is: "ncclDevKernel_AllGather_RING_LL(…)".
std::string collective_kernel(const Dialect& dialect, schedule::OpKind kind, DType dtype);

/// The op around a collective's record_param_comms: "c10d::_allgather_base_".
std::string collective_op(const Dialect& dialect, schedule::OpKind kind);

/// A range of the host's, and whose: ranges of adjacent ops that are equal are one.
struct Range {
  std::string name;
  int key = -1;
  bool op = false;  ///< a cpu_op
  bool operator==(const Range&) const = default;
};

/// The ranges around op `index` of a step, the outermost first.
std::vector<Range> ranges_of(const Dialect& dialect, const std::vector<schedule::Op>& ops, std::size_t index,
                             const std::vector<std::string>& unit_labels);

}  // namespace fsdpbench::foreign::corpus
