#pragma once

#include <array>

#include "hardware/nvml.h"

namespace fsdpbench::hardware {

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
  Nvml::Handle device;
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
struct Nvml::Calls {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*driver_version)(char*, unsigned);
  int (*count)(unsigned*);
  int (*by_index)(unsigned, Handle*);
  int (*by_place)(const char*, Handle*);
  int (*name)(Handle, char*, unsigned);
  int (*memory)(Handle, NvmlMemory*);
  int (*pci)(Handle, NvmlPci*);
  int (*clock)(Handle, int, unsigned*);
  int (*max_clock)(Handle, int, unsigned*);
  int (*power)(Handle, unsigned*);
  int (*power_limit)(Handle, unsigned*);
  int (*temperature)(Handle, int, unsigned*);
  int (*clock_limits)(Handle, unsigned long long*);
  int (*pcie_width)(Handle, unsigned*);
  int (*pcie_generation)(Handle, unsigned*);
  int (*max_pcie_width)(Handle, unsigned*);
  int (*max_pcie_generation)(Handle, unsigned*);
  int (*ecc_mode)(Handle, unsigned*, unsigned*);
  int (*ecc_errors)(Handle, int, int, unsigned long long*);
  int (*link_state)(Handle, unsigned, unsigned*);
  int (*link_errors)(Handle, unsigned, int, unsigned long long*);
  int (*link_far_end)(Handle, unsigned, NvmlPci*);
  int (*link_far_type)(Handle, unsigned, int*);
  int (*common_ancestor)(Handle, Handle, int*);
  int (*make_event_set)(Handle*);
  int (*register_events)(Handle, unsigned long long, Handle);
  int (*wait_for_event)(Handle, NvmlEvent*, unsigned);
  int (*free_event_set)(Handle);
};

}  // namespace fsdpbench::hardware
