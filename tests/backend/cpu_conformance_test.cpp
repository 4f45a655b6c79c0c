#include "backend/conformance.h"
#include "backend/copy_backend.h"
#include "backend/failure_conformance.h"
#include "backend/offload_conformance.h"

namespace fsdpbench::backend {
namespace {

const auto kCpu = testing::Values(&make_copy_backend);

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, kCpu);
INSTANTIATE_TEST_SUITE_P(Cpu, CommunicatorConformance, kCpu);
INSTANTIATE_TEST_SUITE_P(Cpu, StrictCommunicatorConformance, kCpu);
INSTANTIATE_TEST_SUITE_P(Cpu, FailureConformance, kCpu);
INSTANTIATE_TEST_SUITE_P(Cpu, OffloadConformance, kCpu);
INSTANTIATE_TEST_SUITE_P(Cpu, CollectiveConformance,
                         testing::Combine(kCpu, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9),
                                          testing::Values(0, 1, 7, 1000)),
                         sizes_name);
INSTANTIATE_TEST_SUITE_P(Cpu, ExchangeConformance,
                         testing::Combine(kCpu, testing::Values(1, 2, 3, 4, 8), testing::Values(0, 1, 7, 1000)),
                         sizes_name);
INSTANTIATE_TEST_SUITE_P(CpuLarge, CollectiveConformance,
                         testing::Combine(kCpu, testing::Values(1, 2, 4, 9), testing::Values(100'003)), sizes_name);

}  // namespace
}  // namespace fsdpbench::backend
