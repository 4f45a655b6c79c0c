// The conformance suites on the CUDA backend with imagined GPUs.

#include "backend/conformance.h"
#include "backend/copy_kernels.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/failure_conformance.h"
#include "backend/offload_conformance.h"

namespace fsdpbench::backend {

// NCCL sums in an order of its own, and does not tell when peers come or what they call.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StrictCommunicatorConformance);

namespace {

std::unique_ptr<Backend> make_backend_under_test() {
  return std::make_unique<cuda::CudaBackend>([](int) { return std::make_unique<CopyKernels>(); });
}

// As NCCL's, the sums are of values that were scaled and rounded before.
[[maybe_unused]] const bool kRounds = [] {
  sum_tolerance = {.f32 = 1e-5, .bf16 = 0.3};
  return true;
}();

const auto kEmulatedCuda = testing::Values(&make_backend_under_test);

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, DeviceConformance, kEmulatedCuda);
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, CommunicatorConformance, kEmulatedCuda);
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, FailureConformance, kEmulatedCuda);
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, OffloadConformance, kEmulatedCuda);
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, CollectiveConformance,
                         testing::Combine(kEmulatedCuda, testing::Values(1, 2, 3, 8), testing::Values(0, 1, 7, 1000)),
                         sizes_name);
INSTANTIATE_TEST_SUITE_P(EmulatedCuda, ExchangeConformance,
                         testing::Combine(kEmulatedCuda, testing::Values(1, 2, 3, 8), testing::Values(0, 1, 7, 1000)),
                         sizes_name);

}  // namespace
}  // namespace fsdpbench::backend
