#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fsdpbench {

/// An in-order queue of device work. A CUDA stream, a CPU worker thread, a virtual queue.
enum class Lane : std::uint8_t {
  compute,         ///< forward, backward, copy-out, gradient copy-in, optimizer
  all_gather,      ///< parameter gathers; overlaps with compute (FSDP1 "unshard", FSDP2 all_gather stream)
  reduce_scatter,  ///< gradient casts and reduce-scatters; overlaps with backward (FSDP1 "post_backward")
  all_reduce,      ///< replica all-reduces; overlaps with the next unit's reduce-scatter
  copy,            ///< shard casts and copy-in; lets the next gather's copies overlap this gather (FSDP1 "pre_unshard")
  tensor,          ///< sums over the ranks that split a layer: computation waits for them
};

inline constexpr std::size_t kLaneCount = 6;
inline constexpr std::array<Lane, kLaneCount> kLanes{Lane::compute,    Lane::all_gather, Lane::reduce_scatter,
                                                     Lane::all_reduce, Lane::copy,       Lane::tensor};

constexpr std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

constexpr std::string_view to_string(Lane lane) {
  constexpr std::array<std::string_view, kLaneCount> kNames{"compute",    "all_gather", "reduce_scatter",
                                                            "all_reduce", "copy",       "tensor"};
  return kNames[index_of(lane)];
}

}  // namespace fsdpbench
