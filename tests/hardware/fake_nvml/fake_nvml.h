#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// Plans of a test for the stand-in of NVIDIA's management library. All calls are thread-safe.
namespace fake_nvml {

struct Gpu {
  std::string name = "Imagined GPU";
  unsigned sm_mhz = 1755, most_sm_mhz = 1980;
  unsigned power_mw = 640'000, power_limit_mw = 700'000;
  unsigned temperature_c = 61;
  unsigned long long limits = 0;  ///< why its clocks are low
  unsigned pcie_width = 16, pcie_generation = 5, most_pcie_width = 16, most_pcie_generation = 5;
  unsigned ecc = 1;
  unsigned long long ecc_corrected = 3, ecc_uncorrected = 0;
  /// By link: the far end's number, -1: a switch. And what each of them counted.
  std::vector<int> links;
  unsigned long long replays = 0, recoveries = 0, crc = 0;
  std::vector<unsigned long long> xids;  ///< that have not been asked for
  int numa_node = 0;                     ///< GPUs of one node share a host bridge; others meet at the system
  bool lost = false;                     ///< no call about it succeeds any more
};

/// So many as new: numbered from 0, at the places 0000:01:00.0, 0000:02:00.0 …
void set_gpus(int count);
/// `change` is called with the GPU while nobody asks it.
void change(int gpu, const std::function<void(Gpu&)>& change);
/// From now on this call of the interface answers `status`; 0: it works again.
void fail(const std::string& call, int status);
/// How often samples were taken of a GPU's clock.
int clock_reads(int gpu);
/// Sets of events that were made and not freed.
int open_event_sets();
/// Initialisations without their end.
int users();

}  // namespace fake_nvml
