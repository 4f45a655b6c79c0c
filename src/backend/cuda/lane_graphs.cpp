#include "backend/cuda/lane_graphs.h"

#include <fmt/format.h>

#include <stdexcept>

#include "backend/cuda/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

Device::Graph LaneGraphs::begin() {
  if (capturing_) throw std::logic_error("LaneGraphs::begin: a capture goes on");
  began_ns_ = now_ns();
  takes_part_ = {};
  // Of this thread only: other ranks' threads and NCCL's go on as they do.
  check(cudaStreamBeginCapture(streams_[Lane::compute], cudaStreamCaptureModeThreadLocal), "capturing a step");
  capturing_ = true;
  ++captures_;
  takes_part_[index_of(Lane::compute)] = true;
  cudaEvent_t& begin = ends_[index_of(Lane::compute)];
  if (begin == nullptr) begin = events_.take();
  check(cudaEventRecord(begin, streams_[Lane::compute]), "recording an event");
  return static_cast<Device::Graph>(graphs_.size());
}

void LaneGraphs::enter(Lane lane) {
  if (!capturing_ || takes_part_[index_of(lane)]) return;
  check(cudaStreamWaitEvent(streams_[lane], ends_[index_of(Lane::compute)], 0),
        "letting a lane take part in a capture");
  takes_part_[index_of(lane)] = true;
}

Device::Graph LaneGraphs::end() {
  if (!capturing_) throw std::logic_error("LaneGraphs::end: no capture goes on");
  for (const Lane lane : kLanes) {
    if (lane == Lane::compute || !takes_part_[index_of(lane)]) continue;
    cudaEvent_t& end = ends_[index_of(lane)];
    if (end == nullptr) end = events_.take();
    check(cudaEventRecord(end, streams_[lane]), "recording an event");
    check(cudaStreamWaitEvent(streams_[Lane::compute], end, 0), "waiting for an event");
  }
  Graph& made = graphs_.emplace_back();
  capturing_ = false;
  check(cudaStreamEndCapture(streams_[Lane::compute], &made.graph), "capturing a step");
  check(cudaGraphGetNodes(made.graph, nullptr, &made.nodes), "asking a graph");
  // Else all kernels had the priority of the stream that the graph is launched to: a gather would queue up.
  check(cudaGraphInstantiateWithFlags(&made.executable, made.graph, cudaGraphInstantiateFlagUseNodePriority),
        "making a graph that can be launched");
  check(cudaGraphUpload(made.executable, streams_[Lane::compute]), "bringing a graph to the GPU");
  check(cudaStreamSynchronize(streams_[Lane::compute]), "bringing a graph to the GPU");
  made.captured_ns = now_ns() - began_ns_;
  return static_cast<Device::Graph>(graphs_.size() - 1);
}

void LaneGraphs::launch(Device::Graph number) {
  Graph& graph = graphs_.at(static_cast<std::size_t>(number));
  if (graph.executable == nullptr) throw BackendError("the graph is destroyed: a communicator has ended");
  const std::int64_t begin = now_ns();
  check(cudaGraphLaunch(graph.executable, streams_[Lane::compute]), "launching a graph");
  graph.launched_ns += now_ns() - begin;
  ++graph.launches;
}

void LaneGraphs::destroy() noexcept {
  if (capturing_) {
    cudaGraph_t left = nullptr;
    cudaStreamEndCapture(streams_[Lane::compute], &left);  // whatever it says, the capture is over
    if (left != nullptr) cudaGraphDestroy(left);
    capturing_ = false;
  }
  for (Graph& graph : graphs_) {
    if (graph.executable != nullptr) cudaGraphExecDestroy(graph.executable);
    if (graph.graph != nullptr) cudaGraphDestroy(graph.graph);
    graph.executable = nullptr;
    graph.graph = nullptr;
  }
}

Facts LaneGraphs::facts() const {
  Facts all;
  for (const Graph& graph : graphs_) {
    if (graph.launches == 0) continue;
    all.emplace_back(
        "graphs", fmt::format("steps are launched as one graph of {} nodes, captured in {:.1f} ms; {} launches, each "
                              "{:.1f} us of the host's time",
                              graph.nodes, static_cast<double>(graph.captured_ns) * 1e-6, graph.launches,
                              static_cast<double>(graph.launched_ns) * 1e-3 / static_cast<double>(graph.launches)));
  }
  return all;
}

}  // namespace fsdpbench::backend::cuda
