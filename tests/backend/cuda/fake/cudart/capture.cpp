#include "backend/cuda/fake/cudart/capture.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <utility>

#include "backend/cuda/fake/cudart/device.h"
#include "backend/cuda/fake/cudart/faults.h"
#include "backend/cuda/fake/cudart/stream.h"

namespace fake {
namespace {

struct Captures {
  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Capture>> by_stream;
  std::vector<std::weak_ptr<Capture>> all;
};
Captures& captures() {
  static Captures& it = *new Captures;  // threads of streams may outlive main
  return it;
}
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
std::atomic<std::uint64_t> graph_launch_count{0};

/// The lock is held.
void end(Capture& capture) {
  capture.active = false;
  std::erase_if(captures().by_stream, [&](const auto& entry) { return entry.second.get() == &capture; });
}

/// Whether all that was captured comes before what the origin would get next. The lock is held.
bool is_joined(const Capture& capture) {
  std::set<std::size_t> seen;
  std::vector<std::size_t> open(capture.ends.at(capture.origin).begin(), capture.ends.at(capture.origin).end());
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    open.insert(open.end(), capture.nodes[node].after.begin(), capture.nodes[node].after.end());
  }
  return seen.size() == capture.nodes.size();
}

}  // namespace

std::mutex& captures_mutex() { return captures().mutex; }

std::shared_ptr<Capture> capture_of(std::uint64_t stream) {
  const auto found = captures().by_stream.find(stream);
  return found == captures().by_stream.end() ? nullptr : found->second;
}

void join(const std::shared_ptr<Capture>& capture, std::uint64_t stream, const std::set<std::size_t>& after) {
  captures().by_stream[stream] = capture;
  capture->ends[stream].insert(after.begin(), after.end());
}

bool is_capturing(cudaStream_t stream) {
  const std::uint64_t id = stream_of(stream).id();
  const std::lock_guard lock(captures_mutex());
  return capture_of(id) != nullptr;
}

cudaError_t fault_on_stream(const char* name, cudaStream_t stream) {
  if (const cudaError_t error = fault_on(name, device_of(stream))) return error;
  const std::uint64_t id = stream_of(stream).id();
  const std::lock_guard lock(captures_mutex());
  const std::shared_ptr<Capture> capture = capture_of(id);
  return capture == nullptr || capture->valid ? cudaSuccess : failed(cudaErrorStreamCaptureInvalidated);
}

cudaError_t forbidden_on_capturing(cudaStream_t stream) {
  const std::uint64_t id = stream_of(stream).id();
  const std::lock_guard lock(captures_mutex());
  const std::shared_ptr<Capture> capture = capture_of(id);
  if (capture == nullptr) return cudaSuccess;
  capture->valid = false;
  return failed(cudaErrorStreamCaptureUnsupported);
}

cudaError_t forbidden_on_capturing_device(int device) {
  const std::lock_guard lock(captures_mutex());
  bool forbidden = false;
  for (const auto& [stream, capture] : captures().by_stream) {
    if (capture->device != device) continue;
    capture->valid = false;
    forbidden = true;
  }
  return forbidden ? failed(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t forbidden_to_thread() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(captures_mutex());
  bool forbidden = false;
  for (const std::weak_ptr<Capture>& known : captures().all) {
    const std::shared_ptr<Capture> capture = known.lock();
    if (capture == nullptr || !capture->active || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool own = capture->thread == std::this_thread::get_id();
    const bool global = capture->mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
    if (!own && !global) continue;
    capture->valid = false;
    forbidden = true;
  }
  return forbidden ? failed(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

bool capture_on_stream(cudaStream_t stream, const Prepare& prepare, const WorkLabel& label,
                       const std::function<void()>& forget) {
  const Stream& on = stream_of(stream);
  const std::lock_guard lock(captures_mutex());
  const std::shared_ptr<Capture> capture = capture_of(on.id());
  if (capture == nullptr) return false;
  std::set<std::size_t>& ends = capture->ends[on.id()];
  capture->nodes.push_back({prepare, label, on.device(), on.id(), ends, forget});
  ends = {capture->nodes.size() - 1};
  return true;
}

std::uint64_t graph_launches() { return graph_launch_count; }

}  // namespace fake

using namespace fake;

namespace {

/// The nodes of a graph and of what was made of it.
struct Body {
  std::vector<Node> nodes;
  std::atomic<int> handles{0};

  void let_go() {
    if (--handles > 0) return;
    for (const Node& node : nodes) {
      if (node.forget) node.forget();
    }
  }
};

/// Each stream's nodes on a thread of its own, each node once those are done that come before it.
void run(const Body& body, const std::vector<std::function<void()>>& works) {
  std::map<std::uint64_t, std::vector<std::size_t>> by_stream;
  for (std::size_t i = 0; i < body.nodes.size(); ++i) by_stream[body.nodes[i].stream].push_back(i);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> done(body.nodes.size());
  const auto run_all = [&](const std::vector<std::size_t>& nodes) {
    for (const std::size_t i : nodes) {
      const Node& node = body.nodes[i];
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return std::ranges::all_of(node.after, [&](std::size_t a) { return done[a]; }); });
      }
      perform({.label = node.label, .device = node.device, .stream = node.stream}, works[i]);
      const std::lock_guard lock(mutex);
      done[i] = true;
      changed.notify_all();
    }
  };
  std::vector<std::jthread> branches;
  for (const auto& [stream, nodes] : by_stream) branches.emplace_back([&run_all, &nodes] { run_all(nodes); });
}

}  // namespace

/// What a cudaGraph_t and a cudaGraphExec_t point to.
struct CUgraph_st {
  std::shared_ptr<Body> body;
};
struct CUgraphExec_st {
  std::shared_ptr<Body> body;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr || stream == cudaStreamLegacy) return failed(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  const std::uint64_t id = stream_of(stream).id();
  const std::lock_guard lock(captures_mutex());
  if (capture_of(id) != nullptr) return failed(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = id;
  capture->device = device_of(stream);
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  join(capture, id, {});
  std::erase_if(captures().all, [](const std::weak_ptr<Capture>& c) { return c.expired(); });
  captures().all.push_back(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (const cudaError_t error = fault_on(__func__, device_of(stream))) return error;
  const std::uint64_t id = stream_of(stream).id();
  const std::lock_guard lock(captures_mutex());
  const std::shared_ptr<Capture> capture = capture_of(id);
  if (capture == nullptr) return failed(cudaErrorIllegalState);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return failed(cudaErrorStreamCaptureWrongThread);
  }
  if (capture->origin != id) {
    capture->valid = false;
    return failed(cudaErrorStreamCaptureUnmatched);
  }
  end(*capture);
  auto body = std::make_shared<Body>();
  body->nodes = std::move(capture->nodes);
  capture->nodes = {};
  body->handles = 1;
  cudaError_t error = cudaSuccess;
  if (!capture->valid) error = cudaErrorStreamCaptureInvalidated;
  if (error == cudaSuccess) {
    capture->nodes = body->nodes;
    if (!is_joined(*capture)) error = cudaErrorStreamCaptureUnjoined;
    capture->nodes = {};
  }
  if (error != cudaSuccess) {
    body->let_go();
    return failed(error);
  }
  *graph = new CUgraph_st{body};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::uint64_t id = stream_of(stream).id();
  const std::lock_guard lock(captures_mutex());
  const std::shared_ptr<Capture> capture = capture_of(id);
  *status = capture == nullptr ? cudaStreamCaptureStatusNone
            : capture->valid   ? cudaStreamCaptureStatusActive
                               : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes != nullptr) return failed(cudaErrorNotSupported);  // nobody here asks for them
  *count = graph->body->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = fault(__func__)) return error;
  ++graph->body->handles;
  *executable = new CUgraphExec_st{graph->body};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) { return fault_on_stream(__func__, stream); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t error = fault_on_stream(__func__, stream)) return error;
  if (is_capturing(stream)) return failed(cudaErrorNotSupported);  // this stand-in has no graphs in graphs
  ++graph_launch_count;
  std::vector<std::function<void()>> works;
  for (const Node& node : executable->body->nodes) works.push_back(node.prepare());
  run_on_stream(stream, [body = executable->body, works = std::move(works)] { run(*body, works); },
                {.kind = WorkKind::other});
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  executable->body->let_go();
  delete executable;  // what runs of it runs on
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  graph->body->let_go();
  delete graph;
  return cudaSuccess;
}
