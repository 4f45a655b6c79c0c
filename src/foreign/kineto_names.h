#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "foreign/job_trace.h"
#include "schedule/op.h"

namespace fsdpbench::foreign {

// Kinds of kineto's rows, by category and name: of PyTorch 1.13 to today, on NVIDIA's and AMD's GPUs (reference:
// kineto's output_json.cpp, NCCL's and RCCL's kernel tables, PyTorch's ParamCommsUtils).

/// Kind of thing that a row tells about.
enum class RowKind : std::uint8_t {
  op,          ///< cpu_op
  annotation,  ///< user_annotation
  function,    ///< python_function
  call,        ///< of the runtime or the driver
  kernel,      ///< of the device, as are the next two
  copy,
  fill,
  wait,     ///< cuda_sync
  instant,  ///< cpu_instant_event
  other,    ///< nothing that is read
};
RowKind row_kind(std::string_view category);

/// The range in which Python collects garbage: torch.profiler's, with stacks and record_python_gc_info; of others NVTX.
inline constexpr std::string_view kGarbage = "Python GC";

/// launch, synchronise or runtime, by the name of a call: "cudaLaunchKernel", "hipMemcpyWithStream".
HostWork work_of_call(std::string_view name);

/// Operation of a device's kernel, by its name; `other` if it is one of a collectives' library and does not say,
/// nothing if it is none.
std::optional<Communication> communication_of_kernel(std::string_view name);

/// Operation of a call, by record_param_comms' "Collective name" ("_allgather_base") or a communicator's own range
/// ("gloo:all_reduce"); nothing if it only waits or sets up.
std::optional<Communication> communication_of_call(std::string_view name);

/// Operation that an op of PyTorch asks of a communicator: "c10d::_allgather_base_",
/// "_c10d_functional::reduce_scatter_tensor"; nothing if it is no such op.
std::optional<Communication> communication_of_op(std::string_view name);

/// Whether a host's row is the range of a collective from its issue to its end, which other threads may end:
/// "gloo:all_reduce", "nccl:_all_gather_base".
bool is_range_of_collective(std::string_view name);

/// Kind of a host op's work where no device's rows tell; nothing for what only makes, views or names tensors.
std::optional<Activity> work_of_op(std::string_view name);

/// Purpose of a row of the device.
enum class KernelKind : std::uint8_t {
  products,       ///< matrix products and convolutions
  attention,      ///< fused
  elementwise,    ///< with normalisation, reductions and indexing
  optimizer,      ///< all that it launches, and the norm of gradients
  copies,         ///< with fills, casts, and copies between layouts
  communication,  ///< collectives and messages
  other,
};
/// "products"
std::string_view to_string(KernelKind kind);
/// Whether a kernel of that name updates parameters, or prepares it. Copies of many tensors at once are of all phases.
bool updates_parameters(std::string_view name);

/// By what the row is, its name, and the part of the step that it was launched in, where that is known.
KernelKind kernel_kind(Activity activity, std::string_view name, std::optional<schedule::Phase> phase);

}  // namespace fsdpbench::foreign
