#include "backend/conformance.h"
#include "backend/cpu_processes.h"
#include "backend/failure_conformance.h"

namespace fsdpbench::backend {
namespace {

std::unique_ptr<Backend> make_cpu_processes() { return std::make_unique<CpuProcesses>(); }

const auto kProcesses = testing::Values(&make_cpu_processes);

INSTANTIATE_TEST_SUITE_P(CpuProcesses, DeviceConformance, kProcesses);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, CommunicatorConformance, kProcesses);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, StrictCommunicatorConformance, kProcesses);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, FailureConformance, kProcesses);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, CollectiveConformance,
                         testing::Combine(kProcesses, testing::Values(1, 2, 3, 4, 7), testing::Values(0, 1, 7, 1000)));
INSTANTIATE_TEST_SUITE_P(CpuProcesses, ExchangeConformance,
                         testing::Combine(kProcesses, testing::Values(1, 2, 3, 4), testing::Values(0, 1, 7, 1000)));
INSTANTIATE_TEST_SUITE_P(CpuProcessesLarge, CollectiveConformance,
                         testing::Combine(kProcesses, testing::Values(2, 3), testing::Values(1'100'003)));

}  // namespace
}  // namespace fsdpbench::backend
