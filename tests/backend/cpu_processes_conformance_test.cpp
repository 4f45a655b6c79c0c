#include "backend/conformance.h"
#include "backend/cpu_processes.h"
#include "backend/failure_conformance.h"

namespace fsdpbench::backend {
namespace {

std::unique_ptr<Backend> make_cpu_processes() { return std::make_unique<CpuProcesses>(); }

std::unique_ptr<Backend> make_cpu_messages() { return std::make_unique<CpuProcesses>(false); }

// They see each other's memory, or exchange messages.
const auto kProcesses = testing::Values(&make_cpu_processes, &make_cpu_messages);

std::string way(MakeBackend make) { return make == &make_cpu_messages ? "messages" : "memory"; }
std::string way_name(const testing::TestParamInfo<MakeBackend>& test) { return way(test.param); }
std::string way_and_sizes_name(const testing::TestParamInfo<CollectiveConformance::ParamType>& test) {
  return way(std::get<0>(test.param)) + "_" + sizes_name(test);
}

INSTANTIATE_TEST_SUITE_P(CpuProcesses, DeviceConformance, kProcesses, way_name);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, CommunicatorConformance, kProcesses, way_name);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, StrictCommunicatorConformance, kProcesses, way_name);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, FailureConformance, kProcesses, way_name);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, CollectiveConformance,
                         testing::Combine(kProcesses, testing::Values(1, 2, 3, 4, 7), testing::Values(0, 1, 7, 1000)),
                         way_and_sizes_name);
INSTANTIATE_TEST_SUITE_P(CpuProcesses, ExchangeConformance,
                         testing::Combine(kProcesses, testing::Values(1, 2, 3, 4), testing::Values(0, 1, 7, 1000)),
                         way_and_sizes_name);
INSTANTIATE_TEST_SUITE_P(CpuProcessesLarge, CollectiveConformance,
                         testing::Combine(kProcesses, testing::Values(2, 3), testing::Values(1'100'003)),
                         way_and_sizes_name);

}  // namespace
}  // namespace fsdpbench::backend
