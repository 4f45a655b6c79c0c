// Known causes come back: what is configured or injected is what the diagnosis names, on a computed clock. How well that
// holds in real time is bench/causes.cpp's to say.
#include <gtest/gtest.h>

#include "support/cause_cases.h"

namespace fsdpbench::metrics {
namespace {

std::string list(const std::vector<CauseShare>& found) {
  std::string text;
  for (const CauseShare& c : found) text += std::string(to_string(c.cause)) + " " + std::to_string(c.share_pct) + " % ";
  return text;
}

class KnownCause : public ::testing::TestWithParam<Cause> {};

TEST_P(KnownCause, ComesBackAsTheLargest) {
  testing::CauseCases cases(17);
  const testing::CauseCase c = cases.one(GetParam());
  const std::vector<CauseShare> found = testing::found_causes(testing::diagnose(c.config, testing::simulate_tiny));
  EXPECT_TRUE(testing::right(c, found)) << c.name << ": " << list(found);
}

INSTANTIATE_TEST_SUITE_P(All, KnownCause,
                         ::testing::Values(Cause::late_prefetch, Cause::all_gather_limit, Cause::straggler,
                                           Cause::injected_sync, Cause::link_bound, Cause::inefficient_collective,
                                           Cause::communicator_serialisation, Cause::host_bound, Cause::unknown),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(KnownCauses, NothingIsInventedWhereNothingIs) {
  testing::CauseCases cases(5);
  for (int i = 0; i < 20; ++i) {
    const testing::CauseCase c = cases.none();
    const std::vector<CauseShare> found = testing::found_causes(testing::diagnose(c.config, testing::simulate_tiny));
    EXPECT_TRUE(found.empty()) << list(found);
  }
}

}  // namespace
}  // namespace fsdpbench::metrics
