#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cuda/event_store.h"
#include "backend/cuda/lane_streams.h"
#include "backend/device.h"
#include "base/lane.h"

namespace fsdpbench::backend::cuda {

/// What lanes were given during a capture, as CUDA graphs. The compute lane begins a capture; another lane takes part
/// from its first use on. Kernels keep the priorities of their lanes. For the rank's host thread.
class LaneGraphs {
 public:
  explicit LaneGraphs(const LaneStreams& streams) : streams_(streams) {}
  ~LaneGraphs() { destroy(); }
  LaneGraphs(const LaneGraphs&) = delete;
  LaneGraphs& operator=(const LaneGraphs&) = delete;

  /// The number of the capture that goes on, counted from 1; 0: none does.
  int capture() const { return capturing_ ? captures_ : 0; }
  /// Returns the number that the graph will have, from 0 up.
  Device::Graph begin();
  /// Before anything is put on `lane`: it takes part in the capture, if one goes on.
  void enter(Lane lane);
  /// The graph's number, as begin() said. Throws BackendError if CUDA refuses what was captured.
  Device::Graph end();

  /// On the compute lane's stream, after what that has to do.
  void launch(Device::Graph graph);
  /// Ends a capture and destroys all graphs, those that run when they are done. NCCL waits for it before it ends or
  /// aborts a communicator. Graphs keep their numbers, and cannot be launched any more.
  void destroy() noexcept;

  /// "graphs": how large they are and what they cost the host; nothing if none was made.
  Facts facts() const;

 private:
  struct Graph {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    std::size_t nodes = 0;
    std::int64_t captured_ns = 0;  ///< what capturing took, until it could be launched
    std::int64_t launches = 0;
    std::int64_t launched_ns = 0;  ///< what the host took for all of them
  };

  const LaneStreams& streams_;
  EventStore events_{cudaEventDisableTiming};
  std::array<bool, kLaneCount> takes_part_{};
  std::array<cudaEvent_t, kLaneCount> ends_{};  ///< of lanes that have taken part; of compute: where they begin
  bool capturing_ = false;
  int captures_ = 0;
  std::int64_t began_ns_ = 0;
  std::vector<Graph> graphs_;
};

}  // namespace fsdpbench::backend::cuda
