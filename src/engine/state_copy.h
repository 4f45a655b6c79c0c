#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "base/lane.h"
#include "base/memory_space.h"

namespace fsdpbench::engine {

/// Copies a rank's state to host memory beside a step: forward and backward only read masters and moments, so nothing
/// but the updates has to wait for it. What the device has goes over PCIe, on the lane of offloaded gradients; what
/// lies in host memory already (fsdp.cpu_offload) the host copies. Of one rank; used by the thread that issues its ops.
class StateCopy {
 public:
  static constexpr Lane lane_from(MemorySpace space) {
    return space == MemorySpace::device ? Lane::device_to_host : Lane::host_compute;
  }

  struct Part {
    const std::byte* from = nullptr;
    MemorySpace space = MemorySpace::device;  ///< that `from` is in
    std::byte* to = nullptr;                  ///< on the host; must stay
    std::int64_t bytes = 0;
  };
  /// When it was copied. Times are base/clock.h nanoseconds.
  struct Done {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t waited_ns = 0;  ///< of it the first update, which was ready, waited for so long
  };
  /// By memory; of no schedule.
  using Events = std::array<backend::Device::Event, kMemorySpaceCount>;

  StateCopy(backend::Device& device, const Events& events) : device_(device), events_(events) {}

  /// To be copied beside the next step.
  void ask(std::vector<Part> parts) { parts_ = std::move(parts); }
  bool asked() const { return !parts_.empty(); }
  /// Parts of this memory are to be copied.
  bool asked(MemorySpace space) const;
  /// Puts it on its lanes; what the step issues before may be no update.
  void issue();
  /// Before an update is put on `lane`, which must not write what is still to be copied.
  void before_update(Lane lane);
  /// After the step; stamps are settled. `ready_ns`: what the first update had to wait for otherwise was done.
  Done finish(std::int64_t ready_ns);

 private:
  backend::Device& device_;
  const Events events_;
  std::vector<Part> parts_;
  std::vector<backend::Stamp> stamps_;  // by part
};

}  // namespace fsdpbench::engine
