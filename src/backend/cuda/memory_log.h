#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/device.h"

namespace fsdpbench::backend::cuda {

/// What the memory of the current device went to, by asking how much is free at stated moments. Other processes on the
/// GPU are counted where they change in between, and CUDA tells no better.
class MemoryLog {
 public:
  /// Makes the device's context, and notes what is then in use as the first entry.
  MemoryLog();

  /// What has been taken since the last note was for `what`.
  void note(const std::string& what);
  /// One entry a note, and what is in use on the whole device now.
  Facts facts() const;

 private:
  std::int64_t used_ = 0;
  Facts notes_;
};

}  // namespace fsdpbench::backend::cuda
