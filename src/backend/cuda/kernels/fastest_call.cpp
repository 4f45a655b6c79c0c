#include "backend/cuda/kernels/fastest_call.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {
namespace {

/// An event with a time.
class Mark {
 public:
  Mark() { check(cudaEventCreate(&event_), "an event with a time"); }
  ~Mark() { cudaEventDestroy(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "an event with a time"); }
  bool is_past() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) check(status, "an event with a time");
    return status == cudaSuccess;
  }
  float ms_since(const Mark& begin) const {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.event_, event_), "the time between two events");
    return ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

void wait_for(const Mark& mark, const std::function<void()>& while_waiting) {
  constexpr std::chrono::microseconds kNap{20};
  while (!mark.is_past()) {
    if (while_waiting) while_waiting();
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace

std::size_t fastest_call(cudaStream_t stream, std::size_t count, const std::function<bool(std::size_t)>& call,
                         const std::function<void()>& while_waiting) {
  constexpr int kRounds = 4;  // the first warms up
  std::vector<float> least(count, std::numeric_limits<float>::infinity());
  const std::vector<Mark> marks(count + 1);
  std::vector<bool> possible(count, true);
  for (int round = 0; round < kRounds; ++round) {
    // One behind the other, so that all but the first find the GPU at work and their times have no launch in them.
    for (std::size_t i = 0; i < count; ++i) {
      marks[i].record(stream);
      possible[i] = possible[i] && call(i);
    }
    marks[count].record(stream);
    wait_for(marks[count], while_waiting);
    for (std::size_t i = 0; i < count && round > 0; ++i) {
      if (possible[i]) least[i] = std::min(least[i], marks[i + 1].ms_since(marks[i]));
    }
  }
  return static_cast<std::size_t>(std::min_element(least.begin(), least.end()) - least.begin());
}

}  // namespace fsdpbench::backend::cuda
