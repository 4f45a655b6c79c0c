#include "account/run_metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "account/run_details.h"
#include "base/error.h"
#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Op;
using schedule::OpKind;
using ::testing::ElementsAre;
using testing::HandRun;
using testing::Times;

/// A step in which rank r computes for computes[r], then communicates until `until`, copies for 7 ns and idles for 3.
void add_step(HandRun& run, std::int64_t at, const std::vector<std::int64_t>& computes, std::int64_t until) {
  std::vector<trace::StepWindow> windows;
  std::vector<Times> computing, sending, copying;
  for (const std::int64_t compute : computes) {
    computing.push_back({at, at + compute, at});
    sending.push_back({at + compute / 2, at + until, at});
    copying.push_back({at + until, at + until + 7, at});
    windows.push_back({at, at + until + 10});
  }
  run.step(windows);
  run.op(OpKind::forward, Lane::compute, computing);
  run.collective(OpKind::all_gather, Lane::all_gather, sending);
  run.op(OpKind::copy_out, Lane::all_gather, copying);
}

RunMetrics metrics_of(const HandRun& run) {
  return run_metrics(run.view(), plan::Groups(plan::Mesh{static_cast<int>(run.traces.size()), 1}), 1000);
}

double sum_of_parts(const auto& m) { return m.compute_ms + m.exposed_comm_ms + m.exposed_copy_ms + m.idle_ms; }

/// Steps of which no two have the same parts, so that the medians of the parts belong to different steps.
HandRun uneven(int steps) {
  HandRun run(2);
  for (int s = 0; s < steps; ++s) {
    const std::int64_t compute = 50 + 37 * ((s * 5) % 7), other = 30 + 41 * ((s * 3) % 5);
    add_step(run, 10'000 * s, {compute, compute + 9}, compute + other);
  }
  return run;
}

TEST(RunMetrics, PartsAddUpToTheStepTheyAreShownWith) {
  for (const int steps : {1, 2, 3, 4, 8, 20}) {
    const RunMetrics m = metrics_of(uneven(steps));
    EXPECT_NEAR(sum_of_parts(m), m.step_ms.median, 1e-12) << steps;
    EXPECT_NEAR(*m.overlap_pct, 100 * (1 - m.exposed_comm_ms / m.comm_ms), 1e-9) << steps;
    for (const RankMetrics& rank : m.ranks) EXPECT_NEAR(sum_of_parts(rank), rank.step_ms.median, 1e-12) << steps;
  }
}

TEST(RunMetrics, PhasesAddUpToThePartsOfTheRun) {
  HandRun run = uneven(8);
  for (schedule::Schedule& schedule : run.schedules.steps) schedule.ops[0].phase = schedule::Phase::backward;
  const RunMetrics m = metrics_of(run);
  PhaseTimes sum;
  for (const PhaseTimes& phase : run_details(run.view(), plan::Plan{}, {}).phases) {
    sum.step_ms += phase.step_ms;
    sum.compute_ms += phase.compute_ms;
    sum.exposed_comm_ms += phase.exposed_comm_ms;
    sum.idle_ms += phase.idle_ms;
  }
  EXPECT_NEAR(sum.step_ms, m.step_ms.median, 1e-12);
  EXPECT_NEAR(sum.compute_ms, m.compute_ms, 1e-12);
  EXPECT_NEAR(sum.exposed_comm_ms, m.exposed_comm_ms, 1e-12);
  EXPECT_NEAR(sum.idle_ms, m.idle_ms, 1e-12);
}

TEST(RunMetrics, TimeThatOthersWaitForALateRankShows) {
  // Rank 1 computes all the time and is the slowest by a nanosecond; the others wait for it.
  HandRun run(4);
  run.step({{0, 100}, {0, 101}, {0, 100}, {0, 100}});
  run.op(OpKind::forward, Lane::compute, {{0, 20}, {0, 101}, {0, 20}, {0, 20}});
  const RunMetrics m = metrics_of(run);
  EXPECT_NEAR(m.step_ms.median * 1e6, 101, 1e-9);
  EXPECT_NEAR(m.compute_ms / m.step_ms.median, 161.0 / 401, 1e-9);
  EXPECT_NEAR(m.ranks[1].compute_ms * 1e6, 101, 1e-9);
  EXPECT_NEAR(m.ranks[0].compute_ms * 1e6, 20, 1e-9);
}

TEST(MiddleSteps, AreTheMiddleThirdWithTheMedianAmongThem) {
  const auto of = [](const std::vector<std::int64_t>& lengths) {
    HandRun run;
    std::int64_t at = 0;
    for (const std::int64_t length : lengths) {
      run.step(at, at + length);
      run.op(OpKind::release, Lane::compute, Times{});
      at += 1000;
    }
    return middle_steps(run.view());
  };
  EXPECT_THAT(of({5}).indices, ElementsAre(0));
  EXPECT_THAT(of({5, 9}).indices, ElementsAre(0, 1));
  EXPECT_THAT(of({30, 10, 20}).indices, ElementsAre(2));
  EXPECT_EQ(of({30, 10, 20}).median, 2U);
  EXPECT_THAT(of({40, 10, 30, 20}).indices, ElementsAre(2, 3));
  EXPECT_EQ(of({40, 10, 30, 20}).median, 3U);
  EXPECT_DOUBLE_EQ(of({40, 10, 30, 20}).median_ms, 25e-6);
  EXPECT_THAT(of({90, 10, 80, 20, 50, 60, 40}).indices, ElementsAre(4, 5, 6));
}

TEST(RunView, RefusesRanksThatDidNotRecordTheSame) {
  const auto refused = [](auto change) {
    HandRun run = uneven(3);
    change(run.traces[1]);
    EXPECT_THROW(run.view(), Error);
  };
  HandRun more = uneven(3);
  for (trace::RankTrace& trace : more.traces) trace.steps.push_back({});
  EXPECT_THROW(more.view(), Error) << "a step without records";
  refused([](trace::RankTrace& t) { t.steps.pop_back(); });
  refused([](trace::RankTrace& t) { t.records.pop_back(); });
  refused([](trace::RankTrace& t) { std::swap(t.records[3], t.records[4]); });
  refused([](trace::RankTrace& t) { t.records[3].step = 0; });
}

TEST(RunMetrics, APhaseBeginsWithItsFirstComputation) {
  HandRun run;
  run.step(0, 100);
  run.op(OpKind::forward, Lane::compute, Times{10, 30});
  run.op(OpKind::copy_in, Lane::all_gather, Times{35, 45}).phase = schedule::Phase::backward;
  run.op(OpKind::backward, Lane::compute, Times{50, 90}).phase = schedule::Phase::backward;
  std::vector<std::tuple<schedule::Phase, double, double>> told;
  for (const PhaseTimes& phase : run_details(run.view(), plan::Plan{}, {}).phases) {
    if (phase.step_ms > 0)
      told.emplace_back(phase.phase, std::round(1e6 * phase.step_ms), std::round(1e6 * phase.compute_ms));
  }
  EXPECT_THAT(told,
              ElementsAre(std::tuple(schedule::Phase::forward, 50, 20), std::tuple(schedule::Phase::backward, 50, 40)));
}

/// One of seven steps took a tenth of the time of the others, and one ten times as long.
TEST(RunMetrics, TokensASecondAreThoseOfTheMedianStep) {
  HandRun run;
  std::int64_t at = 0;
  for (const std::int64_t length : {100'000, 1'000'000, 1'000'000, 1'000'000, 1'000'000, 1'000'000, 10'000'000}) {
    run.step(at, at + length);
    run.op(OpKind::forward, Lane::compute, Times{at, at + length});
    at += length;
  }
  EXPECT_DOUBLE_EQ(metrics_of(run).tokens_per_s, 1000 / 1e-3);
}

TEST(ModelFlops, AreForwardAndBackwardOfEachMicrobatchOverThePeak) {
  std::vector<plan::ModuleSizes> sizes(2);
  sizes[0].forward_flops = 1e9;
  sizes[0].backward_flops = 2e9;
  sizes[1].forward_flops = 3e9;
  sizes[1].backward_flops = 4e9;
  config::RunConfig c;
  c.train.accumulate = 2;
  c.emulate.compute_tflops.reset();
  const ModelFlops m = model_flops(sizes, c, 5, std::nullopt);
  EXPECT_DOUBLE_EQ(m.per_rank_and_step, 20e9);
  EXPECT_DOUBLE_EQ(m.tflops_per_rank, 4);  // 20 GFLOP in 5 ms
  EXPECT_FALSE(m.peak_tflops || m.mfu_pct);
  c.emulate.compute_tflops = 8;
  EXPECT_DOUBLE_EQ(*model_flops(sizes, c, 5, std::nullopt).mfu_pct, 50);
  EXPECT_DOUBLE_EQ(*model_flops(sizes, c, 5, 16.0).mfu_pct, 25) << "a GPU's own";
}

/// A collective of 40 ns, 10 of them before its peer came, in two steps; of the second its link was done after 25.
TEST(RunMetrics, ATransferIsTimedFromItsLastPeerUntilItsLinkIsDone) {
  HandRun run(2);
  for (const std::int64_t at : {0, 1000, 2000}) {
    run.step(at, at + 100);
    run.collective(OpKind::all_gather, Lane::all_gather,
                   {{at + 10, at + 50, at, at + 20}, {at + 20, at + 50, at, at + 20, 0, at == 0 ? 0 : 25}});
  }
  const RunMetrics m = metrics_of(run);
  const auto shard = static_cast<std::size_t>(plan::Group::shard);
  EXPECT_NEAR(m.ranks[0].transfer_ms[shard] * 1e6, 30, 1e-9);
  EXPECT_NEAR(m.ranks[1].transfer_ms[shard] * 1e6, 25, 1e-9);
  EXPECT_NEAR(*m.bound_ratio, 100.0 / 30, 1e-9) << "what the op takes alone";
  EXPECT_NEAR(m.comm_ms * 1e6, 35, 1e-9) << "the mean of both";
  EXPECT_EQ(m.overlap_pct, 0);
  EXPECT_FALSE(m.aa_noise_pct.has_value());
  EXPECT_EQ(m.ranks[1].rank, 1);
  const RunMetrics some = run_metrics(run.view(), plan::Groups(plan::Mesh{4, 1}), 1000);
  EXPECT_FALSE(some.bound_ratio.has_value()) << "not all ranks are in view";
}

/// Levels begin with what stays; what ends and begins at once is freed as it is issued.
TEST(RunDetails, MemoryRisesWhenAnOpBeginsAndFallsWhenItIsDone) {
  HandRun run;
  run.step(100, 200);
  std::vector<schedule::Buffer>& buffers = run.schedules.steps.back().buffers;
  buffers.resize(3);
  for (schedule::Buffer& buffer : buffers) buffer.category = MemoryCategory::activations;
  buffers[0].bytes = 1;
  buffers[0].persistent = true;
  buffers[1].bytes = 20;
  buffers[2].bytes = 300;
  buffers[2].category = MemoryCategory::communication_buffers;
  run.forward({110, 150, 100}).allocates = {1};
  Op& second = run.op(OpKind::copy_out, Lane::copy, Times{120, 140, 100});
  second.allocates = {2};
  second.frees = {2};
  run.forward({150, 180, 100}).frees = {1};
  const RunView view = run.view();
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> told;
  for (const trace::LiveBytes& level : memory_timeline(view.steps().front(), 0)) {
    told.emplace_back(level.time_ns, level.live[index_of(MemoryCategory::activations)],
                      level.live[index_of(MemoryCategory::communication_buffers)]);
  }
  EXPECT_THAT(told, ElementsAre(std::tuple(0, 1, 0), std::tuple(10, 21, 0), std::tuple(20, 21, 300),
                                std::tuple(40, 21, 0), std::tuple(80, 1, 0)));
}

/// A unit computes for 30 ns and communicates for 40, half of that beside the other unit's computation.
TEST(RunDetails, UnitsHaveWhatIsTheirsAndTheHostWaitsByPhase) {
  HandRun run(2);
  run.step(0, 100);
  run.forward({0, 30}, 1);
  run.forward({30, 60}, 0);
  run.collective(OpKind::all_gather, Lane::all_gather, Times{40, 80}).unit = 1;
  run.op(OpKind::host_sync, Lane::compute, Times{0, 12, 5}).phase = schedule::Phase::forward;
  run.collective(OpKind::all_reduce, Lane::all_reduce, Times{90, 95}).unit = -1;
  plan::Plan plan;
  plan.units.resize(2);
  plan.units[1].members.label = "one";
  plan.groups = plan::Groups(plan::Mesh{2, 1});
  const RunDetails details = run_details(run.view(), plan, LinkModel{1e9, 0});
  ASSERT_EQ(details.units.size(), 2U);
  EXPECT_EQ(details.units[1].unit, "one");
  EXPECT_NEAR(details.units[1].compute_ms * 1e6, 30, 1e-9);
  EXPECT_NEAR(details.units[1].comm_ms * 1e6, 40, 1e-9);
  EXPECT_NEAR(details.units[1].exposed_comm_ms * 1e6, 20, 1e-9);
  EXPECT_NEAR(details.units[0].compute_ms * 1e6, 30, 1e-9);
  EXPECT_EQ(details.units[0].comm_ms, 0);
  EXPECT_NEAR(details.phases.front().host_wait_ms * 1e6, 7, 1e-9);
  EXPECT_NEAR(details.phases.front().overlap_ms * 1e6, 20, 1e-9);
  ASSERT_EQ(details.collectives.size(), 2U);
  EXPECT_EQ(details.collectives[0].op, 2);
  EXPECT_EQ(details.collectives[0].kind, "all_gather");
  EXPECT_EQ(details.collectives[0].phase, "forward");
  EXPECT_EQ(details.collectives[0].group_size, 2);
  EXPECT_EQ(details.collectives[1].unit, "");
  EXPECT_EQ(details.collectives[1].count, 2);
}

/// Computes for 50, of which the second half has communication beside it, up to 90.
TEST(RunMetrics, OfCommunicationSoMuchIsHidden) {
  HandRun run(2);
  for (int s = 0; s < 8; ++s) add_step(run, 1000 * s, {50, 50}, 90 + s);
  const RunMetrics m = metrics_of(run);
  EXPECT_DOUBLE_EQ(m.ranks[1].overlap_pct.value(), 100 * 100.0 / (67 + 68 + 69 + 70)) << "four middle steps";
  EXPECT_TRUE(m.settling.has_value());
  EXPECT_DOUBLE_EQ(m.aa_noise_pct.value(), 100 * aa_noise(m.steps_ms).value());
}

/// Two ranks that compute for a nanosecond and communicate for the next.
TEST(RunMetrics, ANanosecondCounts) {
  HandRun run(2);
  run.step(0, 4);
  run.forward({0, 1});
  run.collective(OpKind::all_gather, Lane::all_gather, {1, 2});
  const RunMetrics m = metrics_of(run);
  EXPECT_EQ(m.overlap_pct, 0);
  EXPECT_EQ(m.ranks[0].overlap_pct, 0);
  EXPECT_EQ(m.bound_ratio, 4.0);
  HandRun alone;
  alone.step(0, 4);
  alone.forward({0, 1});
  EXPECT_FALSE(metrics_of(alone).ranks[0].overlap_pct);
  EXPECT_EQ(metrics_of(alone).bound_ratio, 4.0);
}

}  // namespace
}  // namespace fsdpbench::account
