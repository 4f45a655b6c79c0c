#include "clock/emulated_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

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

TEST(EmulatedTimes, OfCopiesOverPcie) {
  config::RunConfig c = testing::decoder_config(kBlocks, 4);
  c.fsdp.cpu_offload = config::CpuOffload::all;
  PredictedCase e(c);
  e.rates.pcie = {2e9, 5e-6};
  std::int64_t bytes = 0;
  for (const schedule::Op& op : e.steady().ops) {
    if (op.kind == OpKind::host_to_device && e.made.plan.units[static_cast<std::size_t>(op.unit)].label() == "0") {
      bytes = std::get<schedule::Transfer>(op.work).bytes;
    }
  }
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(e.first(OpKind::host_to_device, "0"), 5'000 + bytes / 2);
}

TEST(EmulatedTimes, FlopsAreThoseOfTheModuleOrOfItsPart) {
  std::vector<plan::ModuleSizes> sizes(2);
  for (int m = 0; m < 2; ++m) {
    plan::ModuleSizes& module = sizes[static_cast<std::size_t>(m)];
    module.forward_flops = 3 * m + 1;
    module.recompute_flops = 3 * m + 2;
    module.backward_flops = 3 * m + 3;
  }
  sizes[0].forward_parts = {{11}, {12}};
  sizes[0].recompute_parts = {{21}, {22}};
  sizes[0].backward_parts = {{31}, {32}};
  const auto flops = [&](OpKind kind, int module, int part = -1) {
    schedule::Op op{.kind = kind, .module = module, .work = schedule::Forward{.part = part}};
    if (kind == OpKind::backward) op.work = schedule::Backward{.part = part};
    return flops_of(op, sizes);
  };
  int expected = 0;
  for (const int module : {0, 1}) {
    for (const OpKind kind : {OpKind::forward, OpKind::recompute, OpKind::backward}) {
      EXPECT_EQ(flops(kind, module), ++expected);
      for (int part = 0; module == 0 && part < 2; ++part) EXPECT_EQ(flops(kind, 0, part), 10 * expected + 1 + part);
    }
  }
  EXPECT_EQ(flops(OpKind::optimizer, -1), 0);
  EXPECT_EQ(flops(OpKind::copy_out, 0), 0);
}

TEST(EmulatedTimes, TroubleComesOnTop) {
  const auto with = [](config::Inject inject, OpTimes times = {}) {
    add_trouble(inject, 17, 4, times);
    return times;
  };
  config::Inject inject;
  inject.slow_rank_factor = 2;
  inject.slow_link_factor = 3;
  using Factors = std::vector<double>;
  OpTimes slow;
  slow.compute_factor = {1, 5, 1, 1};
  // Factors are not even listed where they change nothing: then no two ranks differ.
  for (const auto& [rank, factors] : {std::pair<int, Factors>{-1, {}}, {0, {2, 1, 1, 1}}, {3, {1, 1, 1, 2}}, {4, {}}}) {
    inject.slow_rank = rank;
    EXPECT_EQ(with(inject).compute_factor, factors);
    EXPECT_EQ(with(inject).link_factor, Factors{});
  }
  inject.slow_rank = inject.slow_link_rank = 1;
  EXPECT_EQ(with(inject, slow).compute_factor, (Factors{1, 10, 1, 1}));
  EXPECT_EQ(with(inject).link_factor, (Factors{1, 3, 1, 1}));
  inject.slow_rank_factor = 1;
  EXPECT_EQ(with(inject).compute_factor, Factors{});

  OpTimes host;
  host.host.issue_ns = 100;
  inject.jitter_us = 2.0005;
  inject.host_delay_us = 3;
  inject.delay_lane = "copy";
  inject.delay_rank = 2;
  inject.delay_us = 4;
  const OpTimes later = with(inject, host);
  EXPECT_EQ(later.host.issue_ns, 3100);
  EXPECT_EQ(later.delays.uniform_ns, 2000);
  EXPECT_EQ(later.delays.seed, 17U);
  EXPECT_EQ(later.delays.rank, 2);
  for (const Lane lane : kLanes) EXPECT_EQ(later.delays.fixed_ns[index_of(lane)], lane == Lane::copy ? 4000 : 0);
  EXPECT_FALSE(with({}).delays.any());
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
