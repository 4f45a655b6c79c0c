#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "backend/cuda/cupti/cupti_timer.h"
#include "backend/cuda/fake/cupti/fake_cupti.h"

namespace fsdpbench::backend::cuda {

namespace cupti = fake::cupti;

/// So few that a test can use them up.
inline constexpr BufferLimits kFew{.large_bytes = 4096, .large_count = 4, .small_bytes = 1024, .small_count = 4};

inline constexpr CuptiTimer::Patience kShort{std::chrono::milliseconds(60), std::chrono::milliseconds(5)};

/// The tracer against a CUPTI whose every move the test decides.
class CuptiTest : public testing::Test {
 protected:
  void SetUp() override {
    cupti::reset();
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    cupti::api().get_stream_id(nullptr, stream_, 0, &number_);
  }
  void TearDown() override { cudaStreamDestroy(stream_); }

  /// An op that launches a kernel with these times, `times` after one another.
  void op(CuptiTimer& timer, int index, Stamp& stamp, int kernels, std::int64_t begin = 0) {
    timer.begin(Lane::compute, stream_, 3, index, &stamp);
    for (int i = 0; i < kernels; ++i) {
      const auto at = static_cast<std::uint64_t>(begin + 1000 * i);
      cupti::launch_kernel({"gemm", 0, number_, at, at + 900, 0});
    }
    timer.end(Lane::compute, stream_);
  }
  static std::map<std::string, std::string> facts(const CuptiTimer& timer) {
    const Facts list = timer.facts();
    return {list.begin(), list.end()};
  }

  cudaStream_t stream_ = nullptr;
  std::uint32_t number_ = 0;
};

}  // namespace fsdpbench::backend::cuda
