#include "clock/emulated_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "clock/forecast.h"
#include "support/schedule_cases.h"

namespace fsdpbench::clock {
namespace {

using config::Prefetch;
using schedule::OpKind;

constexpr int kBlocks = 4;

/// A step's time, and sums over the ops that compute and that communicate.
struct StepSums {
  std::int64_t step = 0, computation = 0, communication = 0;
  std::int64_t exposed_communication() const { return step - computation; }
};

/// A decoder of equal blocks at 1 GFLOP/s, so that FLOPs are nanoseconds.
struct PredictedCase {
  explicit PredictedCase(const config::RunConfig& config) : made(testing::make_case(config)) {
    for (std::size_t m = 1; m < made.sizes.size(); ++m) {
      made.sizes[m].forward_flops = 2'000'000;
      made.sizes[m].recompute_flops = 1'500'000;
      made.sizes[m].backward_flops = 4'000'000;
    }
  }
  const schedule::Schedule& steady() const { return made.schedules.steady(); }
  StepSums predict() const {
    const schedule::Training training = made.steady();
    OpTimes times = emulated_times(made, rates);
    times.steps.erase(times.steps.begin(), times.steps.end() - 1);
    StepSums sums{static_cast<std::int64_t>(forecast(training, times).slowest_ns())};
    for (std::size_t i = 0; i < times.steps.front().size(); ++i) {
      const auto ns = static_cast<std::int64_t>(times.steps.front()[i].run_ns + times.steps.front()[i].link_ns);
      (training.schedules.steady().ops[i].is_collective() ? sums.communication : sums.computation) += ns;
    }
    return sums;
  }
  std::int64_t first(OpKind kind, const std::string& unit) const {
    const StepCosts all = emulated_times(made, rates).steps.back();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const schedule::Op& op = steady().ops[i];
      if (op.kind == kind && made.plan.units[static_cast<std::size_t>(op.unit)].label() == unit) {
        return static_cast<std::int64_t>(all[i].run_ns + all[i].link_ns);
      }
    }
    throw std::out_of_range("no such op");
  }

  testing::ScheduleCase made;
  Rates rates{1e9, {1e9, 10e-6}};
};

TEST(EmulatedTimes, OfARing) {
  config::RunConfig c = testing::decoder_config(kBlocks, 4, 2);
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  c.fsdp.param_dtype = DType::bf16;
  const PredictedCase e(c);
  const std::int64_t shard = e.made.plan.units[1].layout.shard_numel;
  EXPECT_EQ(e.first(OpKind::all_gather, "0"), 3 * 10'000 + 3 * shard * 2);      // bf16, a byte a nanosecond
  EXPECT_EQ(e.first(OpKind::reduce_scatter, "0"), 3 * 10'000 + 3 * shard * 4);  // fp32
  EXPECT_EQ(e.first(OpKind::all_reduce, "0"), 2 * 10'000 + 2 * shard * 4 / 2);  // two replicas
}

TEST(EmulatedTimes, OfComputation) {
  config::RunConfig c = testing::decoder_config(kBlocks, 4);
  c.fsdp.activation_checkpointing = true;
  const PredictedCase e(c);
  EXPECT_EQ(e.first(OpKind::forward, "0"), 2'000'000);
  EXPECT_EQ(e.first(OpKind::recompute, "0"), 1'500'000);
  EXPECT_EQ(e.first(OpKind::backward, "0"), 4'000'000);
  EXPECT_EQ(e.first(OpKind::optimizer, "0"), 0);
}

TEST(EmulatedStep, WithoutPrefetchOneGatherHidesBesideTheHead) {
  config::RunConfig c = testing::decoder_config(kBlocks, 4);
  c.fsdp.forward_prefetch.mode = Prefetch::Mode::none;
  c.fsdp.backward_prefetch.mode = Prefetch::Mode::none;
  const PredictedCase e(c);
  const StepSums p = e.predict();
  EXPECT_EQ(p.computation, (kBlocks + 1) * 6'000'000);
  // Before its backward the last block has no reduction to wait for: only the head's backward is going on.
  EXPECT_EQ(p.step, p.computation + p.communication - e.first(OpKind::all_gather, "3"));
}

TEST(EmulatedStep, WithPrefetchOnlyTheFirstGathersAndLastReductionsAreExposed) {
  const PredictedCase e(testing::decoder_config(kBlocks, 4));  // a gather takes well under a forward
  const StepSums p = e.predict();
  EXPECT_EQ(p.exposed_communication(), e.first(OpKind::all_gather, "R") + e.first(OpKind::all_gather, "0") +
                                           e.first(OpKind::reduce_scatter, "0") + e.first(OpKind::reduce_scatter, "R"));
  EXPECT_GT(p.communication, 2 * p.exposed_communication());
}

TEST(EmulatedStep, ASlowLinkHidesTheComputationInstead) {
  PredictedCase e(testing::decoder_config(kBlocks, 4));
  const double flops = e.rates.flops_per_second;
  e.rates.flops_per_second = 1e18;
  const StepSums idle = e.predict();
  EXPECT_EQ(idle.computation, 0);
  EXPECT_EQ(idle.step, idle.communication);  // one communicator: one after the other
  e.rates.flops_per_second = flops;
  e.rates.link = {1e18, 0};
  const StepSums busy = e.predict();
  EXPECT_EQ(busy.communication, 0);
  EXPECT_EQ(busy.step, busy.computation);
}

TEST(EmulatedStep, OneRankCommunicatesNothing) {
  config::RunConfig c = testing::decoder_config(kBlocks, 1);
  c.fsdp.strategy = config::Strategy::no_shard;
  PredictedCase e(c);
  e.rates.link = {};  // unknown
  EXPECT_EQ(e.predict().exposed_communication(), 0);
}

}  // namespace
}  // namespace fsdpbench::clock
