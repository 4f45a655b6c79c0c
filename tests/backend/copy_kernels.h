#pragma once

#include <chrono>
#include <cstring>
#include <thread>

#include "backend/cpu/lane_worker.h"

namespace fsdpbench::backend {

/// Kernels of a backend under test that only move bytes and pass time: all that the suites here need.
class CopyKernels : public cpu::EmulatedKernels {
 public:
  CopyKernels() : EmulatedKernels(1e12) {}
  void upload(const void* source, std::byte* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void download(const std::byte* source, void* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void delay(std::int64_t nanoseconds) override { std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds)); }

 private:
  static void copy(const void* source, void* target, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
  }
};

}  // namespace fsdpbench::backend
