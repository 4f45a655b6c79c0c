// model.expert_capacity, expert_drop and expert_pad: what PyTorch computes with Megatron-LM's rule, one computation
// whatever the policy, room and bytes that follow from it, and what each key does to a simulated step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "config/validate.h"
#include "metrics/expert_load.h"
#include "plan/communication.h"
#include "schedule/check_schedules.h"
#include "schedule/fetch_trace.h"
#include "support/golden.h"
#include "support/golden_tokens.h"
#include "support/resumed_run.h"
#include "support/small_simulation.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings
using LimitChange = std::function<void(RunConfig&)>;

/// Six experts, of which each token visits two, and which take 7 of the 24 tokens of a rank's microbatch: 8 in the
/// mean.
RunConfig limited(std::int64_t ranks, std::int64_t expert, const LimitChange& change = {}) {
  RunConfig c = testing::tiny_decoder();
  c.model.experts = 6;
  c.model.active_experts = 2;
  c.model.router_aux_loss = 0.1;
  c.model.expert_capacity = 0.8;
  c.mesh.ranks = ranks;
  c.mesh.expert = expert;
  c.train.steps = 3;
  c.train.warmup = 0;
  c.train.clip_norm = 0.05;
  if (change) change(c);
  return c;
}

std::string limited_digest(const RunConfig& c) { return testing::run_tiny(c).parameters_digest.value(); }

/// Each microbatch is half of the golden batch: capacities are of a rank's own tokens.
void expect_pytorchs_limits(const std::string& name, bool padded) {
  const testing::GoldenDecoder golden(name);
  struct Case {
    std::int64_t ranks, expert, accumulate;
  };
  for (const auto& [ranks, expert, accumulate] : {Case{1, 1, 2}, {2, 1, 1}, {2, 2, 1}}) {
    SCOPED_TRACE(::testing::Message() << name << ": " << ranks << " ranks, " << expert << " split experts");
    RunConfig c;
    c.model = golden.model();
    c.model.expert_pad = padded;
    c.train = golden.train();
    c.train.batch_per_rank /= 2;
    c.train.accumulate = accumulate;
    c.mesh.ranks = ranks;
    c.mesh.expert = expert;
    c.fsdp.activation_checkpointing = padded;
    c = testing::settled(c);
    const engine::Setup p = set_up(c);
    const Measurement result =
        run(*backend::cpu::make_cpu_backend(), p, testing::GoldenTokens(golden), testing::golden_hooks(golden, p.plan));
    EXPECT_GT(metrics::dropped_share(result.expert_rows, result.dropped_rows).value(), 0.05);
    testing::expect_golden(result, golden, p.plan, 1e-6, 3e-5);
  }
}

TEST(ExpertCapacity, TrainsAsPyTorchDoes) {
  for (const bool padded : {false, true}) {
    expect_pytorchs_limits("decoder_expert_capacity", padded);
    expect_pytorchs_limits("decoder_expert_capacity_position", padded);
  }
}

TEST(ExpertCapacity, HasTheSameBitsWhateverThePolicy) {
  for (const std::int64_t expert : {1, 2}) {
    for (const bool padded : {false, true}) {
      const RunConfig base = limited(4, expert, [&](RunConfig& c) {
        c.model.expert_pad = padded;
        c.model.expert_drop = padded ? ExpertDrop::position : ExpertDrop::probs;
        c.model.router_bias_rate = 0.05;
        c.model.shared_experts = 1;
        c.train.accumulate = 2;
        c.fsdp.param_dtype = padded ? DType::f32 : DType::bf16;
      });
      const std::string expected = limited_digest(base);
      std::vector<LimitChange> policies{
          [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op; },
          [](RunConfig& c) { c.fsdp.activation_checkpointing = true; },
          [](RunConfig& c) { c.fsdp.activation_checkpointing = true, c.fsdp.checkpoint_every = 2; },
          [](RunConfig& c) { c.fsdp.forward_prefetch.mode = Prefetch::Mode::none; },
          [](RunConfig& c) { c.fsdp.separate_reduce_scatter_comm = true; }};
      if (expert > 1) {
        policies.emplace_back([](RunConfig& c) { c.mesh.expert_overlap = ExpertOverlap::combine; });
        policies.emplace_back([](RunConfig& c) { c.mesh.expert_overlap = ExpertOverlap::both; });
        policies.emplace_back([](RunConfig& c) { c.mesh.expert_sync = false; });
        policies.emplace_back([](RunConfig& c) { c.fsdp.expert_unit = ExpertUnit::module; });
      }
      for (std::size_t i = 0; i < policies.size(); ++i) {
        RunConfig c = base;
        policies[i](c);
        EXPECT_EQ(limited_digest(c), expected) << "policy " << i << ", mesh.expert " << expert << ", padded " << padded;
      }
    }
  }
}

/// Sums are added up in another order, or with zeros between.
TEST(ExpertCapacity, SplitOrPaddedExpertsComputeTheSame) {
  const Measurement plain = testing::run_tiny(limited(4, 1));
  const std::vector<LimitChange> others{[](RunConfig& c) { c.model.expert_pad = true; },
                                        [](RunConfig& c) { c.mesh.expert = 2; },
                                        [](RunConfig& c) { c.mesh.expert = 2, c.model.expert_pad = true; },
                                        [](RunConfig& c) {
                                          c.mesh.expert = 2, c.mesh.shard = 2;
                                          c.fsdp.strategy = Strategy::hybrid_shard;
                                        }};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const Measurement other = testing::run_tiny(limited(4, 1, others[i]));
    EXPECT_EQ(other.expert_rows, plain.expert_rows) << i;
    EXPECT_EQ(other.dropped_rows, plain.dropped_rows) << i;
    for (std::size_t step = 0; step < plain.losses.size(); ++step) {
      EXPECT_NEAR(other.losses[step], plain.losses[step], 1e-5) << i;
    }
  }
}

TEST(ExpertCapacity, EachKeyChangesTheTraining) {
  std::vector<std::string> digests{limited_digest(limited(2, 1))};
  for (const LimitChange& change : std::vector<LimitChange>{
           [](RunConfig& c) { c.model.expert_capacity = 0; }, [](RunConfig& c) { c.model.expert_capacity = 0.5; },
           [](RunConfig& c) { c.model.expert_drop = ExpertDrop::position; }}) {
    digests.push_back(limited_digest(limited(2, 1, change)));
  }
  std::ranges::sort(digests);
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

/// A limit that nobody reaches: a token visits an expert once.
TEST(ExpertCapacity, NothingIsDroppedWhereAllTokensFit) {
  const auto of = [](double capacity) {
    return limited(2, 1, [&](RunConfig& c) { c.model.expert_capacity = capacity; });
  };
  EXPECT_EQ(limited_digest(of(3)), limited_digest(of(0)));
  const Measurement all = testing::run_tiny(of(3)), unlimited = testing::run_tiny(of(0));
  EXPECT_EQ(all.expert_rows, unlimited.expert_rows);
  EXPECT_EQ(metrics::dropped_share(all.expert_rows, all.dropped_rows), 0);
  EXPECT_FALSE(metrics::dropped_share(unlimited.expert_rows, unlimited.dropped_rows).has_value());
}

TEST(ExpertCapacity, VisitsAreTakenOrDropped) {
  for (const bool checkpointing : {false, true}) {
    const Measurement m = testing::run_tiny(limited(2, 2, [&](RunConfig& c) {
      c.train.accumulate = 2;
      c.fsdp.activation_checkpointing = checkpointing;
    }));
    ASSERT_EQ(m.expert_rows.size(), 3U);
    ASSERT_EQ(m.dropped_rows.size(), 3U);
    for (std::size_t block = 0; block < 3; ++block) {
      const std::vector<std::int64_t>& rows = m.expert_rows[block];
      EXPECT_LE(std::ranges::max(rows), 7 * 3 * 2 * 2) << "rows of 3 steps, 2 microbatches and 2 ranks";
      EXPECT_GT(m.dropped_rows[block], 0);
      EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), m.dropped_rows[block]), 3 * 2 * 2 * 24 * 2);
    }
  }
}

TEST(ExpertCapacity, NeedsTheMemoryThatIsSaidBeforehandAndLessOfIt) {
  for (const bool padded : {false, true}) {
    for (const std::int64_t expert : {1, 2}) {
      for (const bool checkpointing : {false, true}) {
        RunConfig c = testing::settled(limited(4, expert, [&](RunConfig& config) {
          config.model.expert_pad = padded;
          config.fsdp.activation_checkpointing = checkpointing;
        }));
        const engine::Setup setup = set_up(c);
        EXPECT_THAT(schedule::check_schedules(setup.schedules), ::testing::IsEmpty());
        for (const PoolStatistics& memory : testing::run_tiny(c).memory) {
          EXPECT_EQ(memory.peak_occupied, setup.memory.peak_occupied);
        }
        c.model.expert_capacity = 0, c.model.expert_pad = false;
        EXPECT_LT(setup.memory.peak_occupied, set_up(c).memory.peak_occupied);
      }
    }
  }
}

TEST(ExpertCapacity, HasRoomForAnyRouting) {
  Model model = limited(2, 2).model;
  EXPECT_EQ(plan::expert_capacity(model, 24), 7);
  plan::RowExchange rows(model, 24, 2, DType::f32);
  EXPECT_EQ(rows.own, 6 * 7) << "less than 48";
  EXPECT_EQ(rows.arrived, 2 * 3 * 7) << "less than two rows of each token";
  model.expert_capacity = 1.25;
  rows = {model, 24, 2, DType::f32};
  EXPECT_EQ(rows.own, 48) << "no more than there are";
  EXPECT_EQ(rows.arrived, 2 * 3 * 10);
  model.expert_pad = true;
  EXPECT_EQ(plan::RowExchange(model, 24, 2, DType::f32).own, 6 * 10);
  model.expert_capacity = 100;
  EXPECT_EQ(plan::expert_capacity(model, 24), 24) << "a token visits an expert once";
}

/// Whoever is visited, each rank sends as many rows for each expert of the other one, and no counts.
TEST(ExpertCapacity, PaddedExchangesHaveFixedSizes) {
  const RunConfig c = testing::settled(limited(2, 2, [](RunConfig& config) {
    config.model.expert_pad = true;
    config.train.clip_norm = 0;
  }));
  const engine::Setup setup = set_up(c);
  for (const schedule::Op& op : setup.schedules.steady().ops) {
    EXPECT_NE(op.kind, schedule::OpKind::expert_counts);
    EXPECT_NE(op.kind, schedule::OpKind::host_wait);
  }
  const std::int64_t bytes = 3 * 2 * 2 * (3 * 7) * 24 * 4;  // blocks, passes, there and back
  for (const backend::WireBytes& sent : testing::run_tiny(c).wire_bytes) {
    EXPECT_EQ(sent[static_cast<std::size_t>(backend::Collective::all_to_all)], c.train.steps * bytes);
  }
  const double formula =
      plan::communication_volume(setup.plan, c, schedule::regathers(setup.policy, setup.plan)).all_to_all;
  EXPECT_EQ(formula, static_cast<double>(bytes));
  EXPECT_GE(plan::most_expert_bytes(c), formula);
}

TEST(ExpertCapacity, ACheckpointGoesOnWithTheSameBits) {
  const RunConfig c = limited(2, 2, [](RunConfig& config) { config.train.steps = 5; });
  const TemporaryFolder folder;
  EXPECT_EQ(testing::resumed(c, testing::checkpoint_after(2, c, folder)).parameters_digest,
            testing::run_tiny(c).parameters_digest);
}

/// Simulated: two blocks of four experts, each of eight tokens visits two: four rows an expert in the mean.
RunConfig simulated(const LimitChange& change = {}) {
  RunConfig c = testing::small_mixture(2, 4);
  c.mesh.expert_sync = false;
  if (change) change(c);
  validate(c);
  return c;
}

double exchanged_bytes(const RunConfig& c) {
  const engine::Setup p = set_up(c);
  return plan::communication_volume(p.plan, c, schedule::regathers(p.policy, p.plan)).all_to_all;
}

TEST(ExpertCapacity, DroppedRowsAreNeitherSentNorComputed) {
  const RunConfig all = simulated();
  const RunConfig half = simulated([](RunConfig& c) { c.model.expert_capacity = 0.5; });
  EXPECT_EQ(exchanged_bytes(half), exchanged_bytes(all) / 2);
  EXPECT_LT(testing::median_step_ms(half), testing::median_step_ms(all));
  EXPECT_LT(set_up(half).memory.peak_occupied, set_up(all).memory.peak_occupied);
  EXPECT_EQ(testing::median_step_ms(simulated([](RunConfig& c) { c.model.expert_capacity = 1.25; })),
            testing::median_step_ms(all))
      << "equal rows fit";
  const auto whole = [](double capacity) {
    return simulated(
        [&](RunConfig& c) { c.mesh.expert = 1, c.mesh.expert_sync = true, c.model.expert_capacity = capacity; });
  };
  EXPECT_LT(testing::median_step_ms(whole(0.5)), testing::median_step_ms(whole(0)));
}

TEST(ExpertCapacity, LimitsTheBusiestRank) {
  const auto of = [](double imbalance, double capacity) {
    return simulated(
        [&](RunConfig& c) { c.mesh.expert_imbalance.value = imbalance, c.model.expert_capacity = capacity; });
  };
  EXPECT_EQ(testing::median_step_ms(of(1.5, 1.25)), testing::median_step_ms(of(1.25, 0)));
  EXPECT_EQ(exchanged_bytes(of(1.5, 1.25)), exchanged_bytes(of(1.25, 0)));
  EXPECT_LT(testing::median_step_ms(of(1.5, 1.25)), testing::median_step_ms(of(1.5, 0)));
  EXPECT_EQ(testing::median_step_ms(of(1.125, 1.25)), testing::median_step_ms(of(1.125, 0)));
}

TEST(ExpertCapacity, PaddingMakesRowsOfAllRanksThatMany) {
  const auto of = [](bool padded, double imbalance, bool sync) {
    return simulated([&](RunConfig& c) {
      c.model.expert_capacity = 1.25, c.model.expert_pad = padded;
      c.mesh.expert_imbalance.value = imbalance, c.mesh.expert_sync = sync;
    });
  };
  const double even = exchanged_bytes(simulated());
  EXPECT_EQ(exchanged_bytes(of(false, 1, false)), even);
  EXPECT_EQ(exchanged_bytes(of(true, 1, true)), 1.25 * even);
  EXPECT_GT(testing::median_step_ms(of(true, 1, true)), testing::median_step_ms(of(false, 1, false)));
  EXPECT_EQ(testing::median_step_ms(of(true, 2, true)), testing::median_step_ms(of(true, 1, false)))
      << "neither imbalance nor counts";
  EXPECT_GT(testing::median_step_ms(of(false, 1, true)), testing::median_step_ms(of(false, 1, false)))
      << "counts take time";
}

/// Each half of a microbatch has a router: of 8 tokens with 2 visits an expert takes ceil(1.25 * 4), and of the 16 of
/// both halves ten rows, too; of 4 tokens ceil(1.25 * 2) = 3.
TEST(ExpertCapacity, IsOfEachHalf) {
  const auto of = [](bool halves, std::int64_t tokens) {
    return simulated([&](RunConfig& c) {
      c.train.batch_per_rank = 2, c.train.seq_len = tokens / 2;
      c.mesh.expert_halves = halves;
      c.model.expert_capacity = 1.25, c.model.expert_pad = true;
    });
  };
  EXPECT_EQ(exchanged_bytes(of(true, 16)), exchanged_bytes(of(false, 16)));
  EXPECT_EQ(exchanged_bytes(of(true, 8)), exchanged_bytes(of(false, 8)) * 6 / 5);
}

}  // namespace
}  // namespace fsdpbench::engine
