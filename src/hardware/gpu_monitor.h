#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "hardware/gpu_health.h"
#include "hardware/nvml.h"

namespace fsdpbench::hardware {

/// Watches one GPU on a thread of its own, from its making on: the ranks' threads never ask the driver.
class GpuMonitor {
 public:
  struct Pace {
    std::chrono::microseconds every{20'000};
    std::size_t most_samples = 4096;  ///< then pairs of samples become one, and every second moment is left out
  };

  /// `place`: "0000:0f:00.0". Where the GPU cannot be watched, health() says why.
  explicit GpuMonitor(const std::string& place) : GpuMonitor(place, Pace{}) {}
  GpuMonitor(const std::string& place, Pace pace, const char* library = "libnvidia-ml.so.1");
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  /// Health over the time until now. May be called from any thread; it asks the driver, which may take milliseconds.
  GpuHealth health() const;

 private:
  void watch();
  void keep(const GpuSample& sample);
  void take_xids();

  Pace pace_;
  std::optional<NvmlGpu> gpu_;
  GpuErrors errors_before_;
  Nvml::Handle xids_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  GpuHealth health_;
  std::thread thread_;
};

/// `sample` and the one after it as one: what was worst of both, so that nothing that was noticed is lost.
GpuSample joined(const GpuSample& sample, const GpuSample& next);

}  // namespace fsdpbench::hardware
