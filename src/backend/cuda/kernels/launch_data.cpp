#include "backend/cuda/kernels/launch_data.h"

#include <cstring>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/optimizer.h"

namespace fsdpbench::backend::cuda {
namespace {

/// While it lives the calling thread may do what CUDA forbids it during a capture because it could disturb one, and
/// which is known not to: allocate memory that nothing uses yet.
class AllowedInCapture {
 public:
  AllowedInCapture() { check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode"); }
  ~AllowedInCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllowedInCapture(const AllowedInCapture&) = delete;
  AllowedInCapture& operator=(const AllowedInCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

bool same_corrections(const AdamWStep& a, const AdamWStep& b) {
  return a.step == b.step && a.learning_rate == b.learning_rate && a.beta1 == b.beta1 && a.beta2 == b.beta2;
}

}  // namespace

LaunchData::~LaunchData() {
  for (const Piece& piece : pieces_) cudaFreeHost(piece.pinned);
  for (const Corrections& known : corrections_) cudaFree(known.device);
}

LaunchData::Piece& LaunchData::add(std::size_t bytes, std::function<void(void*)> fill) {
  const AllowedInCapture allowed;
  Piece piece{graph_, nullptr, std::move(fill)};
  check(cudaMallocHost(&piece.pinned, bytes), "pinned host memory for a graph");
  pieces_.push_back(std::move(piece));
  return pieces_.back();
}

void LaunchData::upload(const void* source, std::byte* target, std::int64_t bytes) {
  if (bytes == 0) return;
  const auto size = static_cast<std::size_t>(bytes);
  const Piece& piece = add(size, [source, size](void* pinned) { std::memcpy(pinned, source, size); });
  check(cudaMemcpyAsync(target, piece.pinned, size, cudaMemcpyHostToDevice, stream_), "upload in a graph");
}

const float* LaunchData::corrections(const AdamWStep& step) {
  for (const Corrections& known : corrections_) {
    if (known.graph == graph_ && same_corrections(known.step, step)) return known.device;
  }
  Corrections made{graph_, step, nullptr};
  {
    const AllowedInCapture allowed;
    void* memory = nullptr;
    check(cudaMalloc(&memory, sizeof(AdamWCorrections)), "memory for an update in a graph");
    made.device = static_cast<float*>(memory);
  }
  corrections_.push_back(made);
  const Piece& piece = add(sizeof(AdamWCorrections), [step](void* pinned) {
    AdamWStep of_launch = step;
    if (step.step_of_launch != nullptr) of_launch.step = *step.step_of_launch;
    const AdamWCorrections values = adamw_corrections(of_launch);
    std::memcpy(pinned, &values, sizeof values);
  });
  check(cudaMemcpyAsync(made.device, piece.pinned, sizeof(AdamWCorrections), cudaMemcpyHostToDevice, stream_),
        "upload in a graph");
  return made.device;
}

void LaunchData::fill(std::int32_t graph) {
  for (const Piece& piece : pieces_) {
    if (piece.graph == graph) piece.fill(piece.pinned);
  }
}

}  // namespace fsdpbench::backend::cuda
