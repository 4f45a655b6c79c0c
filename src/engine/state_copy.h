#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/device.h"
#include "base/lane.h"

namespace fsdpbench::engine {

/// Copies a rank's state to host memory beside a step: forward and backward only read masters and moments, so nothing
/// but the updates has to wait for it. Of one rank; used by the thread that issues its ops.
class StateCopy {
 public:
  static constexpr Lane kLane = Lane::copy;

  struct Part {
    const std::byte* from = nullptr;  ///< on the device
    std::byte* to = nullptr;          ///< on the host; must stay
    std::int64_t bytes = 0;
  };
  /// When it was copied. Times are base/clock.h nanoseconds.
  struct Done {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t waited_ns = 0;  ///< of it the first update, which was ready, waited for so long
  };

  /// `event` is of no schedule.
  StateCopy(backend::Device& device, backend::Device::Event event) : device_(device), event_(event) {}

  /// To be copied beside the next step.
  void ask(std::vector<Part> parts) { parts_ = std::move(parts); }
  bool asked() const { return !parts_.empty(); }
  /// Puts it on its lane; what the step issues before may be no update.
  void issue();
  /// Before an update is put on `lane`, which must not write what is still to be copied.
  void before_update(Lane lane) {
    if (asked()) device_.wait(lane, event_);
  }
  /// After the step; stamps are settled. `ready_ns`: what the first update had to wait for otherwise was done.
  Done finish(std::int64_t ready_ns);

 private:
  backend::Device& device_;
  const backend::Device::Event event_;
  std::vector<Part> parts_;
  std::vector<backend::Stamp> stamps_;  // by part
};

}  // namespace fsdpbench::engine
