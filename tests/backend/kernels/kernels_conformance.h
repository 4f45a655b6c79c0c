#pragma once

// Results that every backend's kernels must have, against float64 references, in fp32 and bf16. Written once; a backend
// instantiates the suite with a function that makes its KernelHost:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, KernelsConformance,
//                            testing::Combine(testing::Values(&make_host), testing::Values(DType::f32, DType::bf16)));
//   INSTANTIATE_TEST_SUITE_P(Cpu, MasterKernelsConformance,
//                            testing::Combine(testing::Values(&make_host), testing::Values(DType::f32)));

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend {

/// A device as far as kernels need one.
class KernelHost {
 public:
  virtual ~KernelHost() = default;
  /// Device memory, aligned to 64 bytes, valid as long as the host.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  /// Calls `work` with kernels and returns when they are done.
  virtual void run(const std::function<void(Kernels&)>& work) = 0;
};
/// Null if this machine has no such device; then no_kernel_host says why, and the tests skip.
using MakeKernelHost = std::unique_ptr<KernelHost> (*)();
inline std::string no_kernel_host;

/// A fenced device tensor, filled with NaN until set. Reads and writes doubles; a value written is rounded to dtype.
class Tensor {
 public:
  Tensor(KernelHost& host, std::int64_t count, DType dtype);

  void set(const std::vector<double>& values);
  void set_integers(const std::vector<std::int32_t>& values);
  /// Values as the device has them; fails the test if a fence was overwritten.
  std::vector<double> get() const;

  std::int64_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  std::byte* data() const { return memory_ + kFence; }
  Elements elements() const { return {data(), dtype_}; }
  float* floats() const { return reinterpret_cast<float*>(data()); }
  const std::int32_t* integers() const { return reinterpret_cast<const std::int32_t*>(data()); }

 private:
  static constexpr std::int64_t kFence = 64;
  std::int64_t bytes() const { return count_ * size_of(dtype_); }

  KernelHost& host_;
  std::int64_t count_;
  DType dtype_;
  std::byte* memory_;
};

class KernelsConformance : public testing::TestWithParam<std::tuple<MakeKernelHost, DType>> {
 protected:
  std::unique_ptr<KernelHost> host_ = std::get<0>(GetParam())();
  DType dtype_ = std::get<1>(GetParam());

  void SetUp() override {
    if (host_ == nullptr) GTEST_SKIP() << no_kernel_host;
  }
  void run(const std::function<void(Kernels&)>& work) { host_->run(work); }
  Tensor tensor(std::int64_t count) { return {*host_, count, dtype_}; }
  Tensor floats(std::int64_t count) { return {*host_, count, DType::f32}; }
  Tensor filled(const std::vector<double>& values, DType dtype);
  Tensor filled(const std::vector<double>& values) { return filled(values, dtype_); }
  Tensor integers(const std::vector<std::int32_t>& values);
  /// Normal values; the same for every backend and run.
  Tensor random(std::int64_t count, double deviation = 1.0) { return random(count, dtype_, deviation); }
  Tensor random(std::int64_t count, DType dtype, double deviation = 1.0);
  std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab);

  /// Every element within `f32` or `bf16` (by dtype) times the largest expected magnitude.
  void expect_near(const Tensor& actual, const std::vector<double>& expected, double f32 = 1e-5, double bf16 = 1e-2);
  double tolerance(double f32 = 1e-5, double bf16 = 1e-2) const { return dtype_ == DType::f32 ? f32 : bf16; }

 private:
  std::mt19937 generator_{42};
};

/// Kernels of the optimizer: masters, moments and reduced gradients are fp32 always.
class MasterKernelsConformance : public KernelsConformance {};

}  // namespace fsdpbench::backend
