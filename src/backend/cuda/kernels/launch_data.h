#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// What the host gives to each launch of a graph: captured copies read pinned memory that belongs to them, and that is
/// filled before every launch. All of one stream.
class LaunchData {
 public:
  /// `stream` outlives this and is idle when it dies.
  explicit LaunchData(cudaStream_t stream) : stream_(stream) {}
  ~LaunchData();
  LaunchData(const LaunchData&) = delete;
  LaunchData& operator=(const LaunchData&) = delete;

  /// What is asked for until end() belongs to the graph of this number.
  void begin(std::int32_t graph) { graph_ = graph; }
  void end() { graph_ = -1; }
  bool capturing() const { return graph_ >= 0; }

  /// In a capture: each launch copies what is then in `source`.
  void upload(const void* source, std::byte* target, std::int64_t bytes);
  /// In a capture: device memory that has the AdamWCorrections of each launch's step. Once for all updates of a step.
  const float* corrections(const AdamWStep& step);

  /// Before each launch; the one before is over.
  void fill(std::int32_t graph);

 private:
  struct Piece {
    std::int32_t graph = 0;
    void* pinned = nullptr;
    std::function<void(void*)> fill;
  };
  struct Corrections {
    std::int32_t graph = 0;
    AdamWStep step;
    float* device = nullptr;
  };
  Piece& add(std::size_t bytes, std::function<void(void*)> fill);

  cudaStream_t stream_;
  std::int32_t graph_ = -1;
  std::vector<Piece> pieces_;
  std::vector<Corrections> corrections_;
};

}  // namespace fsdpbench::backend::cuda
