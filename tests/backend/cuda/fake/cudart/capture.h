#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "backend/cuda/fake/fake_stream.h"

namespace fake {

/// One piece of work of a graph.
struct Node {
  Prepare prepare;
  WorkLabel label;
  int device = 0;
  std::uint64_t stream = 0;      ///< that it was captured on
  std::set<std::size_t> after;   ///< nodes that come before it
  std::function<void()> forget;  ///< no handle of a graph has it any more; may be empty
};

/// What streams were given since cudaStreamBeginCapture, as the CUDA C++ Programming Guide has it ("Creating a Graph
/// Using Stream Capture"). Guarded by captures_mutex().
struct Capture {
  std::uint64_t origin = 0;
  int device = 0;
  std::thread::id thread;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool active = true;
  bool valid = true;
  std::vector<Node> nodes;
  std::map<std::uint64_t, std::set<std::size_t>> ends;  ///< by stream that takes part: what its next node comes after
};
std::mutex& captures_mutex();

/// The following want captures_mutex() held.

/// That `stream` takes part in; null if it does in none.
std::shared_ptr<Capture> capture_of(std::uint64_t stream);
/// `stream` takes part from now on, behind these nodes.
void join(const std::shared_ptr<Capture>& capture, std::uint64_t stream, const std::set<std::size_t>& after);

/// Not these.

bool is_capturing(cudaStream_t stream);
/// As fault_on() for what is put on `stream`; also if its capture is invalid already.
cudaError_t fault_on_stream(const char* name, cudaStream_t stream);
/// Something was asked of a stream that it cannot answer, or may not do, while it captures: that capture is invalid.
/// Success if it captures nothing.
cudaError_t forbidden_on_capturing(cudaStream_t stream);
/// The same of all streams of a device.
cudaError_t forbidden_on_capturing_device(int device);
/// A call that could disturb a capture is forbidden to the thread that captures, and of a global capture to all; a
/// thread may take back the protection for itself (cudaThreadExchangeStreamCaptureMode). The capture is invalid then.
cudaError_t forbidden_to_thread();

}  // namespace fake
