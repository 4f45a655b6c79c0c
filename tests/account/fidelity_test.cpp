#include "account/fidelity.h"

#include <gmock/gmock.h>

#include "account/caveats.h"
#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Op;
using schedule::OpKind;
using testing::HandRun;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Times;

/// 1 TFLOP/s, so that a kiloFLOP takes a nanosecond; a byte a nanosecond.
config::RunConfig emulated() {
  config::RunConfig c;
  c.emulate.compute_tflops = 1;
  c.emulate.link_gb_per_s = 1;
  c.emulate.link_latency_us = 0;
  return c;
}

std::vector<plan::ModuleSizes> sizes() {
  plan::ModuleSizes size;
  size.forward_flops = 1e9;   // 1 ms
  size.backward_flops = 2e9;  // 2 ms
  return {size};
}

constexpr std::int64_t kMs = 1'000'000;

/// Two ranks compute forward and backward of the one module, then gather 1 MB each.
HandRun run_of(std::int64_t forward, std::int64_t backward, std::int64_t transfer) {
  HandRun run(2);
  run.step(0, 10 * kMs);
  run.forward({0, forward}).module = 0;
  Op& op = run.op(OpKind::backward, Lane::compute, Times{forward, forward + backward});
  op.module = 0;
  const std::int64_t begin = forward + backward;
  run.collective(OpKind::all_gather, Lane::all_gather, Times{begin, begin + kMs / 2 + transfer, 0, begin + kMs / 2},
                 schedule::Group::shard, kMs / 4);  // waits for its peer
  return run;
}

std::optional<Fidelity> fidelity(const HandRun& run, const config::RunConfig& config, double bound_ratio = 1) {
  RunMetrics metrics;
  metrics.bound_ratio = bound_ratio;
  return emulation_fidelity(run.view(), plan::Groups(plan::Mesh{2, 1}), sizes(), config, metrics);
}

TEST(Fidelity, OfAMachineThatKeepsUp) {
  const Fidelity f = fidelity(run_of(kMs, 2 * kMs, kMs), emulated()).value();
  EXPECT_NEAR(f.compute.value().modelled_ms, 3, 1e-9);
  EXPECT_NEAR(f.compute.value().observed_ms, 3, 1e-9);
  EXPECT_NEAR(f.transfer.value().modelled_ms, 1, 1e-9);
  EXPECT_NEAR(f.transfer.value().observed_ms, 1, 1e-9);  // waiting for a peer is no transfer
  EXPECT_NEAR(f.excess_pct, 0, 1e-9);
  EXPECT_TRUE(f.rated());
  EXPECT_THAT(why_not_rated(f), IsEmpty());
}

TEST(Fidelity, BeyondTheLimitARunIsNotRatedAndSaysWhy) {
  EXPECT_TRUE(fidelity(run_of(kMs, 2 * kMs + 190'000, kMs), emulated()).value().rated());
  const Fidelity slow = fidelity(run_of(kMs, 2 * kMs + 210'000, kMs), emulated()).value();
  EXPECT_NEAR(slow.excess_pct, 5.25, 1e-6);
  EXPECT_FALSE(slow.rated());
  EXPECT_THAT(why_not_rated(slow), HasSubstr("computation took 3.2 ms a step where 3.0 are modelled"));
  EXPECT_FALSE(fidelity(run_of(kMs, 2 * kMs, kMs + 210'000), emulated()).value().rated());
}

TEST(Fidelity, OfARealPartNothingIsSaid) {
  config::RunConfig c = emulated();
  c.emulate.compute_tflops.reset();
  EXPECT_FALSE(fidelity(run_of(9, 9, kMs), c).value().compute);
  c = emulated();
  c.emulate.link_gb_per_s.reset();
  EXPECT_FALSE(fidelity(run_of(kMs, 2 * kMs, 9), c).value().transfer);
  c.emulate.compute_tflops.reset();
  EXPECT_FALSE(fidelity(run_of(kMs, 2 * kMs, kMs), c));
}

TEST(Fidelity, InjectedSlownessIsPartOfTheModel) {
  config::RunConfig c = emulated();
  c.inject.slow_rank = 1;
  c.inject.slow_rank_factor = 3;
  c.inject.slow_link_rank = 0;
  c.inject.slow_link_factor = 2;
  const Fidelity f = fidelity(run_of(kMs, 2 * kMs, kMs), c).value();
  EXPECT_NEAR(f.compute.value().modelled_ms, (3.0 + 9.0) / 2, 1e-9);
  EXPECT_NEAR(f.transfer.value().modelled_ms, 2, 1e-9);  // the slowest member's link decides
}

TEST(Fidelity, ATransferBesideAnotherIsNotJudged) {
  HandRun run = run_of(kMs, 2 * kMs, kMs);
  run.collective(OpKind::reduce_scatter, Lane::reduce_scatter, Times{4 * kMs, 6 * kMs}, schedule::Group::shard_separate,
                 1);
  const Fidelity f = fidelity(run, emulated()).value();
  EXPECT_FALSE(f.transfer);
  EXPECT_TRUE(f.rated());
}

RunMetrics metrics_with(double exposed_ms, double noise_pct) {
  RunMetrics m;
  m.step_ms.median = 100;
  m.exposed_comm_ms = exposed_ms;
  m.overlap_pct = 50;
  m.aa_noise_pct = noise_pct;
  return m;
}

TEST(Caveats, NoneWhereAllIsWell) { EXPECT_THAT(caveats(metrics_with(10, 2), {}, 4, 4), IsEmpty()); }

TEST(Caveats, NoiseAboveWhatTheRunShows) {
  EXPECT_THAT(caveats(metrics_with(50, 5.1), {}, 0, 2).at(0), HasSubstr("5.1 %"));
  EXPECT_THAT(caveats(metrics_with(1.5, 2), {}, 0, 2).at(0), HasSubstr("more than the 1.5 %"));
  EXPECT_THAT(caveats(metrics_with(0.1, 0.9), {}, 0, 2), IsEmpty());  // as quiet as can be asked for
  RunMetrics alone = metrics_with(0, 2);
  alone.overlap_pct.reset();  // nothing is communicated, so nothing is to be shown of it
  EXPECT_THAT(caveats(alone, {}, 0, 2), IsEmpty());
}

TEST(Caveats, RanksThatTakeTurnsOnTheCores) {
  EXPECT_THAT(caveats(metrics_with(10, 0), {}, 4, 2).at(0), HasSubstr("4 ranks compute on 2 cores"));
  EXPECT_THAT(caveats(metrics_with(10, 0), {}, 2, 1).at(0), HasSubstr("2 ranks compute on 1 cores"));
  EXPECT_THAT(caveats(metrics_with(10, 0), {}, 4, 0), IsEmpty());  // not known how many there are
}

TEST(Fidelity, LanesThatBeginLateBetweenOpsThatKeepUp) {
  const HandRun well = run_of(kMs, 2 * kMs, kMs);
  EXPECT_TRUE(fidelity(well, emulated(), 1.04).value().rated());
  const Fidelity late = fidelity(well, emulated(), 1.09).value();
  EXPECT_FALSE(late.rated());
  EXPECT_THAT(why_not_rated(late), HasSubstr("a step 9.0 % longer than its own op times allow"));
  Fidelity slow = fidelity(run_of(2 * kMs, 2 * kMs, kMs), emulated()).value();
  slow.late_pct = 0;
  EXPECT_THAT(why_not_rated(slow), ::testing::Not(HasSubstr("began late")));
  EXPECT_FALSE(fidelity(run_of(kMs, 2 * kMs + 120'000, kMs), emulated(), 1.03).value().rated()) << "3 % and 3 %";

  config::RunConfig c = emulated();
  c.inject.host_delay_us = 100;
  EXPECT_TRUE(fidelity(well, c, 1.5).value().rated()) << "as was asked for";
  c = emulated();
  c.emulate.compute_tflops.reset();
  EXPECT_TRUE(fidelity(well, c, 1.5).value().rated()) << "the lateness of a real host is its own";
}

TEST(Caveats, AnUnratedRunComesFirst) {
  const Fidelity slow = fidelity(run_of(2 * kMs, 2 * kMs, kMs), emulated()).value();
  const std::vector<std::string> all = caveats(metrics_with(10, 9), slow, 0, 2);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0], HasSubstr("not rated"));
}

TEST(Fidelity, WhatIsInjectedIsAskedForHoweverLittle) {
  const HandRun well = run_of(kMs, 2 * kMs, kMs);
  for (double config::Inject::*key :
       {&config::Inject::jitter_us, &config::Inject::host_delay_us, &config::Inject::delay_us}) {
    config::RunConfig c = emulated();
    c.inject.*key = 0.5;
    EXPECT_TRUE(fidelity(well, c, 1.5).value().rated());
  }
  config::RunConfig c = emulated();
  c.inject.slow_link_factor = 2;  // of no rank
  c.inject.slow_rank_factor = 3;
  const Fidelity f = fidelity(well, c).value();
  EXPECT_NEAR(f.transfer.value().modelled_ms, 1, 1e-9);
  EXPECT_NEAR(f.compute.value().modelled_ms, 3, 1e-9);
}

TEST(Fidelity, OfLessThanANanosecondIsOne) {
  HandRun run(2);
  run.step(0, 100);
  run.forward({0, 5}).module = 0;
  plan::ModuleSizes size;
  size.forward_flops = 250;  // a quarter of a nanosecond
  const auto f = emulation_fidelity(run.view(), plan::Groups(plan::Mesh{2, 1}), {size}, emulated(), {});
  EXPECT_TRUE(f && f->compute);
}

TEST(Fidelity, CopiesOverPcieAreModelledToo) {
  config::RunConfig c = emulated();
  c.emulate.pcie_gb_per_s = 2;
  c.emulate.pcie_latency_us = 100;
  HandRun run(2);
  run.step(0, 10 * kMs);
  run.op(OpKind::host_to_device, Lane::host_to_device, Times{0, kMs}).work = schedule::Transfer{.bytes = 800'000};
  const Fidelity f = fidelity(run, c).value();
  EXPECT_NEAR(f.transfer.value().modelled_ms, 0.1 + 0.4, 1e-9);
  EXPECT_NEAR(f.transfer.value().observed_ms, 1, 1e-9);
  EXPECT_NEAR(f.excess_pct, 100, 1e-6);
}

/// Transfers of 1 ms each, in another order than they were issued, the last beside another one.
TEST(Fidelity, WhatATransferHadBesideItIsAMatterOfTimeNotOfOrder) {
  const auto transfers = [](const std::vector<std::int64_t>& begins) {
    HandRun run(2);
    run.step(0, 20 * kMs);
    for (const std::int64_t begin : begins) {
      run.collective(OpKind::all_gather, Lane::all_gather, Times{begin, begin + kMs, 0, begin}, schedule::Group::shard,
                     kMs / 4);
    }
    const std::optional<Fidelity> found = fidelity(run, emulated());
    return found ? found->transfer.value().modelled_ms : 0;
  };
  EXPECT_NEAR(transfers({5 * kMs, kMs, 3 * kMs}), 3, 1e-9);
  EXPECT_NEAR(transfers({0, kMs, 2 * kMs}), 3, 1e-9) << "one may begin where another ends";
  EXPECT_NEAR(transfers({6 * kMs, kMs, 6 * kMs + kMs / 2}), 1, 1e-9);
  EXPECT_NEAR(transfers({kMs, kMs / 2, 6 * kMs}), 1, 1e-9);
  EXPECT_EQ(transfers({0, kMs / 2}), 0);
}

/// Two groups of three ranks, of which each sends 2 MB; the second took twice as long.
TEST(Fidelity, EachGroupCountsOnce) {
  HandRun run(6);
  run.step(0, 10 * kMs);
  const Times quick{0, 2 * kMs}, slow{0, 4 * kMs};
  run.collective(OpKind::all_gather, Lane::all_gather, {quick, quick, quick, slow, slow, slow}, schedule::Group::shard,
                 kMs / 4);
  const auto f = emulation_fidelity(run.view(), plan::Groups(plan::Mesh{3, 2}), sizes(), emulated(), {});
  EXPECT_NEAR(f.value().transfer.value().modelled_ms, 2, 1e-9);
  EXPECT_NEAR(f.value().transfer.value().observed_ms, 3, 1e-9);
  EXPECT_THAT(why_not_rated(f),
              HasSubstr("did not keep up with what it emulates: transfers took 3.0 ms a step where 2.0"));
}

TEST(Caveats, ChangeWhereNoiseIsExactlyAsMuch) {
  EXPECT_THAT(caveats(metrics_with(1, kNoisyPct), {}, 0, 2).at(0), HasSubstr("more than the 1.0 %"));
  EXPECT_THAT(caveats(metrics_with(2, 2.01), {}, 0, 2).at(0), HasSubstr("more than the 2.0 %"));
  EXPECT_THAT(caveats(metrics_with(2, 2), {}, 0, 2), IsEmpty());
}

}  // namespace
}  // namespace fsdpbench::account
