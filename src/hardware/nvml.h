#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hardware/gpu_health.h"
#include "hardware/nvml_calls.h"

namespace fsdpbench::hardware {

/// NVIDIA's management library, opened at run time by its published C interface: programs neither need it to be built
/// nor to start. What this library does not have, or a GPU does not support, is absent. Thread-safe, as NVML is.
class Nvml {
 public:
  using Handle = NvmlHandle;
  /// A call's answer that means success, and those that are told apart.
  enum Status : int { kSuccess = 0, kNotSupported = 3, kTimeout = 10, kFunctionNotFound = 13, kGpuIsLost = 15 };

  /// Null where it cannot be used, with a sentence in `why_not`. `file` is as dlopen() takes it.
  static std::shared_ptr<const Nvml> open(std::string& why_not, const char* file = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  ///< empty: not told
  /// GPUs of this machine, those hidden from CUDA, too.
  int gpus() const;
  /// In the order of NVML; null where it gives none.
  Handle gpu(int index) const;
  /// By its place on the host's bus, "0000:0f:00.0"; null, with a sentence, where it gives none.
  Handle gpu_at(const std::string& place, std::string& why_not) const;
  std::string error_text(int status) const;

  const NvmlCalls& calls() const { return calls_; }

 private:
  Nvml() = default;

  std::shared_ptr<void> library_;
  NvmlCalls calls_{};
  bool initialised_ = false;
};

/// One GPU, asked now. No call waits for the GPU's work; each takes some microseconds to milliseconds.
class NvmlGpu {
 public:
  NvmlGpu(std::shared_ptr<const Nvml> nvml, Nvml::Handle handle) : nvml_(std::move(nvml)), handle_(handle) {}

  std::string name() const;
  std::optional<std::int64_t> memory_bytes() const;
  std::string place() const;  ///< "0000:0f:00.0"; empty: not told
  GpuLimits limits() const;
  /// `time_ns` is the caller's.
  GpuSample sample(std::int64_t time_ns) const;
  /// Since the driver was loaded.
  GpuErrors errors() const;

  /// The GPU at the far end of an NVLink, or a switch that leads to all.
  struct Link {
    bool to_switch = false;
    std::string place;  ///< of a GPU
  };
  std::vector<Link> active_links() const;
  /// NVML's common ancestor on the bus of both, 0 to 50; absent: not told.
  std::optional<int> common_ancestor(const NvmlGpu& other) const;

  /// A set in which this GPU's Xids arrive; null where there is none.
  Nvml::Handle watch_xids() const;
  void stop_watching(Nvml::Handle set) const;
  /// The next Xid of the set that has arrived; absent: none has.
  std::optional<std::uint64_t> next_xid(Nvml::Handle set) const;

  /// Whether some call so far has said that the GPU does not answer any more.
  bool is_lost() const { return *lost_; }

 private:
  /// Notes what it says of the GPU as a whole. True: the value was told.
  bool told(int status) const;
  std::optional<std::int32_t> number(int (*call)(Nvml::Handle, unsigned*)) const;

  std::shared_ptr<const Nvml> nvml_;
  Nvml::Handle handle_;
  std::shared_ptr<std::atomic<bool>> lost_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace fsdpbench::hardware
