#pragma once

#include <array>

namespace fsdpbench::hardware {

/// What NVML takes for a GPU, and for a set of events.
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

}  // namespace fsdpbench::hardware
