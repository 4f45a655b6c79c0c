#include "clock/measured_host.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fsdpbench::clock {
namespace {

/// 3 hops each; their repetitions differ by so much of each.
std::vector<LineSample> line(double hop_ns, double ns_per_byte, double spread = 0) {
  std::vector<LineSample> samples;
  for (const double bytes : {4e3, 3e4, 5e5, 2e6, 1.6e7}) {
    const double ns = std::round(3 * hop_ns + ns_per_byte * bytes);
    samples.push_back({3, bytes, ns, spread * ns});
  }
  return samples;
}

TEST(LineFit, FindsLatencyAndBandwidth) {
  const LineFit fit = fit_line(line(12'000, 0.25));
  EXPECT_NEAR(fit.fixed_ns, 12'000, 1);
  EXPECT_NEAR(fit.ns_per_amount, 0.25, 1e-6);
  EXPECT_EQ(fit.samples, 5);
  EXPECT_NEAR(fit.ns(7, 1e6), 7 * 12'000 + 0.25e6, 10);
}

TEST(LineFit, ALatencyThatTheSamplesDoNotShowIsNone) {
  EXPECT_EQ(fit_line(line(0, 0.3)).fixed_ns, 0);
  EXPECT_EQ(fit_line(line(20, 0.3, 0.06)).fixed_ns, 0);
  EXPECT_GT(fit_line(line(20, 0.3, 0.001)).fixed_ns, 0);
  const std::vector<LineSample> one{{3, 1000, 5000, 0}, {3, 1000, 5100, 0}};
  EXPECT_EQ(fit_line(one).fixed_ns, 0);
  EXPECT_NEAR(fit_line(one).ns_per_amount, 5.05, 0.01);
}

TEST(LineFit, GoesThroughTheMiddleOfWhatScatters) {
  std::vector<LineSample> samples;
  for (const double bytes : {1e5, 1e6, 1e7}) {
    for (const double times : {0.7, 1.3}) samples.push_back({1, bytes, times * bytes, 0});
  }
  const LineFit fit = fit_line(samples);
  EXPECT_NEAR(fit.ns(1, 1e6), 1e6, 1e3);  // errors relative to the times would say 0.85e6
  EXPECT_GT(fit.within, 0.3);
  EXPECT_EQ(fit_line(line(12'000, 0.25)).within, 0);
}

TEST(LineFit, NothingIsNegative) {
  const std::vector<LineSample> falling{{1, 1000, 9000, 0}, {1, 2000, 5000, 0}};
  const LineFit fit = fit_line(falling);
  EXPECT_EQ(fit.ns_per_amount, 0);
  EXPECT_NEAR(fit.fixed_ns, 7000, 1e-6) << "their mean";
  const std::vector<LineSample> rising{{1, 1000, 10, 0}, {1, 2000, 9000, 0}};
  EXPECT_EQ(fit_line(rising).fixed_ns, 0);
  EXPECT_GT(fit_line(rising).ns_per_amount, 0);
}

/// Two times of one size are off their mean by so much on both sides: Student's 97.5 % of two is 4.303.
TEST(LineFit, SaysHowFarTheNextTimeMayBe) {
  const auto within = [](double below, double above) {
    return fit_line(std::vector<LineSample>{{1, 10, below, 0}, {1, 10, above, 0}}).within;
  };
  EXPECT_NEAR(within(1000, 3000), 0.5 * 4.303, 1e-3);
  EXPECT_NEAR(within(300, 500), 0.1 * 4.303, 1e-3) << "of a microsecond: shorter ones are mostly rounding";
  EXPECT_EQ(within(2999, 3001), 0) << "as near as times are rounded";
  EXPECT_NEAR(within(2998, 3002), 2 / 3000.0 * 4.303, 1e-5);
}

/// Worked out beside the program: weighted least squares, then six rounds of weights by the line before.
TEST(LineFit, IsFoundInSixRounds) {
  EXPECT_NEAR(fit_line(std::vector<LineSample>{{2, 0, 700, 0}, {4, 0, 900, 0}}).fixed_ns, 261.410248786, 1e-8);
  const std::vector<LineSample> bent{{1, 1000, 2000, 0}, {1, 2000, 9000, 0}, {1, 4000, 3000, 0}, {1, 8000, 40'000, 0}};
  EXPECT_NEAR(fit_line(bent).ns_per_amount, 3.08220183283, 1e-10);
  // A line through 0 leaves both by 0.95 ns, which is rounding, or by 1.2.
  for (const auto& [more, shown] : {std::pair{2.4, false}, {3.0, true}}) {
    std::vector<LineSample> samples;
    for (const double amount : {1000.0, 2000.0}) samples.push_back({1, amount, amount + more, 0});
    EXPECT_EQ(fit_line(samples).fixed_ns > 0, shown) << more;
  }
}

TEST(LineFit, WhatIsKnownIsNotFitted) {
  const LineFit fit = fit_line(line(12'000, 0.25), 10'000);
  EXPECT_EQ(fit.fixed_ns, 10'000);
  EXPECT_GT(fit.ns_per_amount, 0.25);
  EXPECT_EQ(fit_line({}).samples, 0);
  EXPECT_EQ(fit_line({}).ns(1, 1), 0);
}

TEST(LineFit, NoBytesAtAll) {
  const std::vector<LineSample> samples{{1, 0, 400, 0}, {1, 0, 400, 0}};
  EXPECT_NEAR(fit_line(samples).fixed_ns, 400, 1e-6);
}

}  // namespace
}  // namespace fsdpbench::clock
