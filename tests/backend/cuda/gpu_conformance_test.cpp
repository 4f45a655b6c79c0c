// The conformance suites on the CUDA backend with this machine's GPUs, through the plugin.

#include "backend/conformance.h"
#include "backend/cuda/gpu_support.h"
#include "backend/failure_conformance.h"
#include "backend/offload_conformance.h"

namespace fsdpbench::backend {

// NCCL sums in an order of its own, and does not tell when peers come or what they call.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StrictCommunicatorConformance);

namespace {

[[maybe_unused]] const bool kReady = [] {
  why_skip = why_skip_gpu;
  sum_tolerance = {.f32 = 1e-5, .bf16 = 0.3};
  return true;
}();

const auto kCuda = testing::Values(&make_gpu_backend);

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance, kCuda);
INSTANTIATE_TEST_SUITE_P(Cuda, CommunicatorConformance, kCuda);
INSTANTIATE_TEST_SUITE_P(Cuda, FailureConformance, kCuda);
INSTANTIATE_TEST_SUITE_P(Cuda, OffloadConformance, kCuda);
INSTANTIATE_TEST_SUITE_P(Cuda, CollectiveConformance,
                         testing::Combine(kCuda, testing::Values(1, 2, 4, 8), testing::Values(0, 1, 7, 1000, 100'003)),
                         sizes_name);
INSTANTIATE_TEST_SUITE_P(Cuda, ExchangeConformance,
                         testing::Combine(kCuda, testing::Values(1, 2, 4, 8), testing::Values(0, 1, 7, 1000, 100'003)),
                         sizes_name);

}  // namespace
}  // namespace fsdpbench::backend
