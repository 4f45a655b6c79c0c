#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/enum_table.h"

namespace fsdpbench {

/// An in-order queue of device work. A CUDA stream, a CPU worker thread, a virtual queue.
enum class Lane : std::uint8_t {
  compute,         ///< forward, backward, copy-out, gradient copy-in, optimizer
  all_gather,      ///< parameter gathers; overlaps with compute (FSDP1 "unshard", FSDP2 all_gather stream)
  reduce_scatter,  ///< gradient casts and reduce-scatters; overlaps with backward (FSDP1 "post_backward")
  all_reduce,      ///< replica all-reduces; overlaps with the next unit's reduce-scatter
  copy,            ///< shard casts and copy-in; lets the next gather's copies overlap this gather (FSDP1 "pre_unshard")
  tensor,          ///< sums over the ranks that split a layer: computation waits for them
  host_to_device,  ///< fsdp.cpu_offload: shards from host memory, over PCIe
  device_to_host,  ///< gradients to host memory, over PCIe's other direction
  host_compute,    ///< what the host's processors compute: the update of what lies in their memory
};

inline constexpr std::size_t kLaneCount = kEnumCount<Lane>;
inline constexpr auto& kLanes = kEnumerators<Lane>;

constexpr std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

/// Used by fsdp.cpu_offload alone: without it there is neither a thread nor a track.
constexpr bool is_offload_lane(Lane lane) {
  return lane == Lane::host_to_device || lane == Lane::device_to_host || lane == Lane::host_compute;
}

constexpr std::string_view to_string(Lane lane) {
  constexpr EnumNames<Lane> kNames{"compute", "all_gather",     "reduce_scatter", "all_reduce",  "copy",
                                   "tensor",  "host_to_device", "device_to_host", "host_compute"};
  return kNames[lane];
}

/// Work of the device itself for an op: one kernel, copy or fill, as a profiler recorded it. Times are
/// base/clock.h nanoseconds.
struct Activity {
  enum class Kind : std::uint8_t { kernel, copy, fill };

  Kind kind = Kind::kernel;
  std::int32_t step = -1;         ///< -1: belongs to no op
  std::int32_t op = -1;           ///< index into that step's schedule
  std::int32_t name = 0;          ///< index into the list of names that comes with it
  std::int32_t stream = 0;        ///< the device's number of the stream
  std::uint32_t correlation = 0;  ///< joins the host's call and the device's work
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t launch_begin_ns = 0;  ///< the host's call; 0: not recorded
  std::int64_t launch_end_ns = 0;
  std::int32_t launch_name = -1;    ///< index into the names ("cudaLaunchKernelExC"); -1: not recorded
  std::uint32_t launch_thread = 0;  ///< the system's number of the calling thread
  std::int64_t bytes = 0;           ///< copies and fills
};

/// Kinds of work that the ranks of a group do together; backend/communicator.h says what each gets.
enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all, send_recv };

/// As traces and messages call it.
constexpr std::string_view to_string(CollectiveKind kind) {
  constexpr EnumNames<CollectiveKind> kNames{"all_gather", "reduce_scatter", "all_reduce",
                                             "broadcast",  "all_to_all",     "send_recv"};
  return kNames[kind];
}

}  // namespace fsdpbench
