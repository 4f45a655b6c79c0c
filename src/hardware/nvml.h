#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hardware/gpu_health.h"

namespace fsdpbench::hardware {

/// NVML's handle of a GPU, or of a set of events.
using NvmlHandle = void*;

// NVML's structs and numbers, as its published interface has them (CUDA 11 to 13: these have not changed).
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlPci {
  std::array<char, 16> legacy_bus_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};
static_assert(sizeof(NvmlPci) == 68);
struct NvmlEvent {
  NvmlHandle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(NvmlEvent) == 32);

inline constexpr int kNvmlClockSm = 1;
inline constexpr int kNvmlTemperatureOfGpu = 0;
inline constexpr int kNvmlCorrected = 0;
inline constexpr int kNvmlUncorrected = 1;
inline constexpr int kNvmlVolatile = 0;
inline constexpr unsigned kNvmlMostLinks = 36;
inline constexpr int kNvmlLinkReplay = 0;
inline constexpr int kNvmlLinkRecovery = 1;
inline constexpr int kNvmlLinkCrcFlit = 2;
inline constexpr int kNvmlLinkCrcData = 3;
inline constexpr int kNvmlRemoteSwitch = 2;
inline constexpr unsigned long long kNvmlXidEvent = 0x8;

/// Null: this NVML does not have it.
struct NvmlCalls {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*driver_version)(char*, unsigned);
  int (*count)(unsigned*);
  int (*by_index)(unsigned, NvmlHandle*);
  int (*by_place)(const char*, NvmlHandle*);
  int (*name)(NvmlHandle, char*, unsigned);
  int (*memory)(NvmlHandle, NvmlMemory*);
  int (*pci)(NvmlHandle, NvmlPci*);
  int (*clock)(NvmlHandle, int, unsigned*);
  int (*max_clock)(NvmlHandle, int, unsigned*);
  int (*power)(NvmlHandle, unsigned*);
  int (*power_limit)(NvmlHandle, unsigned*);
  int (*temperature)(NvmlHandle, int, unsigned*);
  int (*clock_limits)(NvmlHandle, unsigned long long*);
  int (*pcie_width)(NvmlHandle, unsigned*);
  int (*pcie_generation)(NvmlHandle, unsigned*);
  int (*max_pcie_width)(NvmlHandle, unsigned*);
  int (*max_pcie_generation)(NvmlHandle, unsigned*);
  int (*ecc_mode)(NvmlHandle, unsigned*, unsigned*);
  int (*ecc_errors)(NvmlHandle, int, int, unsigned long long*);
  int (*link_state)(NvmlHandle, unsigned, unsigned*);
  int (*link_errors)(NvmlHandle, unsigned, int, unsigned long long*);
  int (*link_far_end)(NvmlHandle, unsigned, NvmlPci*);
  int (*link_far_type)(NvmlHandle, unsigned, int*);
  int (*common_ancestor)(NvmlHandle, NvmlHandle, int*);
  int (*make_event_set)(NvmlHandle*);
  int (*register_events)(NvmlHandle, unsigned long long, NvmlHandle);
  int (*wait_for_event)(NvmlHandle, NvmlEvent*, unsigned);
  int (*free_event_set)(NvmlHandle);
};

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
