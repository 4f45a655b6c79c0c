// Comparisons on a computed clock whose ops and ranks have luck: equals are called equal, planted differences are found
// or not, but never with the wrong sign. In real time it is bench/compare.cpp's to say.
#include <gtest/gtest.h>

#include "support/compare_cases.h"

namespace fsdpbench::engine {
namespace {

using account::Verdict;

/// How often each verdict is given of B, which takes `factor` times as long as A.
struct Verdicts {
  int faster = 0, slower = 0, none = 0;
};

Verdicts verdicts(int comparisons, double factor, double rank_jitter_pct) {
  config::RunConfig a = testing::compared_step();
  a.simulate.jitter_pct = 5;
  a.simulate.rank_jitter_pct = rank_jitter_pct;  // drawn once a trial: what its steps share
  const config::RunConfig b = testing::slower(a, factor);
  std::uint64_t seed = 0;
  const auto run = [&](Setup& setup) {
    setup.config.simulate.seed = ++seed;  // no two trials have the same luck
    return simulate(setup, simulated_times(setup, nullptr));
  };
  Verdicts found;
  for (int i = 0; i < comparisons; ++i) {
    switch (testing::compare_in_turns(a, b, run).verdict) {
      case Verdict::faster: ++found.faster; break;
      case Verdict::slower: ++found.slower; break;
      case Verdict::no_difference:
      case Verdict::inconclusive: ++found.none; break;
    }
  }
  return found;
}

class Comparisons : public ::testing::TestWithParam<double> {};

TEST_P(Comparisons, OfEqualsGiveAtMostTwoFalseDifferencesInAHundred) {
  const Verdicts found = verdicts(500, 1.0, GetParam());
  EXPECT_LE(found.faster + found.slower, 10);
}

TEST_P(Comparisons, FindFivePercent) { EXPECT_GE(verdicts(20, 1.05, GetParam()).slower, 19); }

TEST_P(Comparisons, NeverMistakeThreePercentSlowerForFaster) {
  EXPECT_EQ(verdicts(20, 1.03, GetParam()).faster, 0);
  EXPECT_EQ(verdicts(20, 1 / 1.03, GetParam()).slower, 0);
}

INSTANTIATE_TEST_SUITE_P(Noise, Comparisons, ::testing::Values(0.5, 1.0, 2.0),
                         [](const auto& noise) { return std::to_string(static_cast<int>(noise.param * 10)); });

}  // namespace
}  // namespace fsdpbench::engine
