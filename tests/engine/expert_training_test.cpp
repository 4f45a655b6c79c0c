// mesh.expert in trainings on the CPU: what ranks that split the experts compute is what they compute without, and what
// PyTorch does, whatever the policy, and the memory is what is said beforehand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "account/step_breakdown.h"
#include "base/error.h"
#include "plan/communication.h"
#include "schedule/check_schedules.h"
#include "schedule/prefetcher.h"
#include "support/golden.h"
#include "support/golden_tokens.h"
#include "support/resumed_run.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

/// Six experts, of which each token visits two.
RunConfig split_mixture(std::int64_t ranks, std::int64_t expert, const std::function<void(RunConfig&)>& change = {}) {
  RunConfig c = testing::tiny_decoder();
  c.model.experts = 6;
  c.model.active_experts = 2;
  c.model.router_aux_loss = 0.1;
  c.mesh.ranks = ranks;
  c.mesh.expert = expert;
  c.train.steps = 8;
  c.train.warmup = 0;
  c.train.optimizer = Optimizer::sgd;  // AdamW would make small errors of small gradients large
  c.train.learning_rate = 0.1;
  if (change) change(c);
  return c;
}

/// The largest difference of a parameter's elements, over the largest of them.
double distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double off = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double most = 0, apart = 0;
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      most = std::max(most, std::abs(static_cast<double>(b[i][j])));
      apart = std::max(apart, std::abs(static_cast<double>(a[i][j]) - static_cast<double>(b[i][j])));
    }
    off = std::max(off, most > 0 ? apart / most : apart);
  }
  return off;
}

void expect_same_training(const RunConfig& split, double tolerance) {
  RunConfig whole = split;
  whole.mesh.expert = 1;
  const Measurement with = testing::run_tiny(split), without = testing::run_tiny(whole);
  ASSERT_EQ(with.losses.size(), without.losses.size());
  for (std::size_t i = 0; i < with.losses.size(); ++i) {
    EXPECT_NEAR(with.losses[i], without.losses[i], tolerance * static_cast<double>(without.losses[i])) << "step " << i;
  }
  EXPECT_LT(distance(with.parameters, without.parameters), tolerance);
}

TEST(ExpertTraining, ComputesWhatRanksWithAllExpertsCompute) {
  const std::vector<RunConfig> cases{
      split_mixture(2, 2),
      split_mixture(3, 3),
      split_mixture(4, 2),  // each expert on two ranks
      split_mixture(4, 2, [](RunConfig& c) { c.train.clip_norm = 0.05; }),
      split_mixture(4, 2, [](RunConfig& c) { c.train.accumulate = 2, c.mesh.expert_sync = false; }),
      split_mixture(4, 2,
                    [](RunConfig& c) { c.fsdp.activation_checkpointing = true, c.model.fused_projections = true; }),
      split_mixture(4, 2,
                    [](RunConfig& c) {
                      c.mesh.shard = 2;
                      c.fsdp.strategy = Strategy::hybrid_shard;
                      c.train.clip_norm = 0.05;
                      c.model.active_experts = 4;  // more than a rank has
                    }),
      split_mixture(4, 2, [](RunConfig& c) { c.model.shared_experts = 2; }),
      split_mixture(2, 2,
                    [](RunConfig& c) { c.model.shared_experts = 1, c.mesh.expert_overlap = ExpertOverlap::combine; }),
      split_mixture(2, 2,
                    [](RunConfig& c) {
                      c.model.shared_experts = 1;
                      c.model.fused_projections = true;
                      c.mesh.expert_overlap = ExpertOverlap::both;
                      c.fsdp.activation_checkpointing = true;
                    }),
      split_mixture(6, 3, [](RunConfig& c) { c.model.experts = 9; })};  // three experts over two ranks: one is padding
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "case " << i);
    expect_same_training(cases[i], 1e-5);
  }
  // Sums are rounded in other places, each to 8 bits.
  expect_same_training(split_mixture(4, 2, [](RunConfig& c) { c.fsdp.param_dtype = DType::bf16; }), 0.02);
}

/// As many tokens as ever visit experts, so that rows of a rank go to the others by the data alone.
TEST(ExpertTraining, SendsRowsToTheRanksThatHaveTheirExperts) {
  const Measurement with = testing::run_tiny(split_mixture(2, 2));
  const auto exchanged = [&](std::size_t rank) {
    return with.wire_bytes[rank][static_cast<std::size_t>(backend::Collective::all_to_all)];
  };
  // What one rank sends in a dispatch the other sends back in the combine, so both send as much. Whole rows and
  // numbers.
  EXPECT_EQ(exchanged(0), exchanged(1));
  constexpr std::int64_t kRow = 24 * 4, kCounts = 3 * 4, kBlocks = 3, kSteps = 8, kTokens = 24;
  const std::int64_t rows = exchanged(0) - kSteps * kBlocks * kCounts;
  EXPECT_EQ(rows % (2 * kRow), 0);  // forward and backward
  EXPECT_GT(rows, 0);
  EXPECT_LT(rows, kSteps * kBlocks * 4 * 2 * kTokens * kRow);
  EXPECT_NE(rows, kSteps * kBlocks * 4 * kTokens * kRow) << "experts are not visited equally often";
}

/// Each of 24 tokens of each rank, step and microbatch visits two experts, whoever has these, and once where a block is
/// recomputed.
TEST(ExpertTraining, CountsTheRowsOfEachExpert) {
  const auto rows_of = [](std::int64_t expert, bool checkpointing) {
    return testing::run_tiny(split_mixture(2, expert,
                                           [&](RunConfig& c) {
                                             c.train.warmup = 1;
                                             c.train.steps = 3;
                                             c.train.accumulate = 2;
                                             c.fsdp.activation_checkpointing = checkpointing;
                                           }))
        .expert_rows;
  };
  const std::vector<std::vector<std::int64_t>> rows = rows_of(1, false);
  ASSERT_EQ(rows.size(), 3U);
  for (const std::vector<std::int64_t>& block : rows) {
    ASSERT_EQ(block.size(), 6U);
    EXPECT_EQ(std::accumulate(block.begin(), block.end(), std::int64_t{0}), 3 * 2 * 2 * 24 * 2);
    EXPECT_NE(std::ranges::min(block), std::ranges::max(block)) << "no router is even by chance";
  }
  EXPECT_EQ(rows_of(1, true), rows);
  EXPECT_EQ(rows_of(2, true).size(), 3U);
  EXPECT_TRUE(testing::run_tiny(testing::tiny_decoder()).expert_rows.empty()) << "it has no experts";
}

TEST(ExpertTraining, HasTheSameBitsWhateverThePolicy) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const RunConfig base = split_mixture(4, 2, [&](RunConfig& c) {
      c.fsdp.param_dtype = dtype;
      c.train.clip_norm = 0.05;
      c.train.steps = 3;
      c.model.shared_experts = 1;
    });
    const std::string expected = testing::run_tiny(base).parameters_digest.value();
    const std::vector<std::function<void(RunConfig&)>> policies{
        [](RunConfig& c) { c.mesh.expert_sync = false; },
        [](RunConfig& c) { c.mesh.expert_overlap = ExpertOverlap::combine; },
        [](RunConfig& c) { c.mesh.expert_overlap = ExpertOverlap::both; },
        [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op; },
        [](RunConfig& c) { c.fsdp.activation_checkpointing = true; },
        [](RunConfig& c) { c.fsdp.forward_prefetch.mode = Prefetch::Mode::none; },
        [](RunConfig& c) { c.fsdp.forward_prefetch = {.mode = Prefetch::Mode::explicit_, .depth = 1}; },
        [](RunConfig& c) { c.fsdp.backward_prefetch.mode = Prefetch::Mode::post; },
        [](RunConfig& c) { c.fsdp.separate_reduce_scatter_comm = true; }};
    for (std::size_t i = 0; i < policies.size(); ++i) {
      RunConfig c = base;
      policies[i](c);
      EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected) << "policy " << i;
    }
  }
}

TEST(ExpertTraining, NeedsTheMemoryThatIsSaidBeforehand) {
  for (const std::int64_t ranks : {2, 4}) {
    for (const bool checkpointing : {false, true}) {
      RunConfig c = testing::settled(split_mixture(ranks, 2));
      c.model.shared_experts = ranks == 4 ? 2 : 0;
      c.mesh.expert_overlap = checkpointing ? ExpertOverlap::both : ExpertOverlap::combine;
      c.fsdp.activation_checkpointing = checkpointing;
      c.train.optimizer = Optimizer::adamw;
      c.train.steps = 3;
      const engine::Setup setup = set_up(c);
      EXPECT_THAT(schedule::check_schedules(setup.schedules), ::testing::IsEmpty());
      for (const PoolStatistics& memory : testing::run_tiny(c).memory) {
        EXPECT_EQ(memory.peak_occupied, setup.memory.peak_occupied);
      }
    }
  }
}

/// A token visits an expert once: of 24 tokens on each of two ranks, whose experts are three each, two rows a token.
TEST(ExpertTraining, HasRoomForAnyRouting) {
  const RunConfig c = split_mixture(2, 2);
  const plan::RowExchange rows(c.model, 24, 2, DType::f32);
  EXPECT_EQ(rows.own, 48);
  EXPECT_EQ(rows.arrived, 96);
  EXPECT_EQ(plan::RowExchange(split_mixture(6, 6).model, 24, 6, DType::f32).arrived, 6 * 24) << "one expert a rank";
}

TEST(ExpertTraining, SendsNoMoreThanTheFormulaAllows) {
  for (const bool checkpointing : {false, true}) {
    const RunConfig c = testing::settled(split_mixture(2, 2, [&](RunConfig& config) {
      config.fsdp.activation_checkpointing = checkpointing;
      config.model.active_experts =
          6;  // each token visits all, so that a rank sends as many rows as it has experts for
    }));
    // 24 tokens of 24 floats: 72 rows leave a rank, and those that came go back; the numbers of 3 experts.
    const std::int64_t passes = 3 * (checkpointing ? 3 : 2), bytes = passes * 2 * 72 * 24 * 4 + (passes - 3) * 3 * 4;
    const engine::Setup setup = set_up(c);
    const Measurement measured = testing::run_tiny(c);
    for (const backend::WireBytes& sent : measured.wire_bytes) {
      EXPECT_EQ(sent[static_cast<std::size_t>(backend::Collective::all_to_all)], c.train.steps * bytes);
    }
    plan::CommunicationVolume counted =
        plan::communication_volume(setup.plan, c, schedule::regathers(setup.policy, setup.plan));
    // The most is more: all rows of a rank may visit the other's experts.
    EXPECT_EQ(plan::most_expert_bytes(c), passes * (144 + 72) * 24 * 4 + (passes - 3) * 3 * 4);
    counted.all_to_all = plan::most_expert_bytes(c);
    const plan::CommunicationVolume formula = counted;
    EXPECT_NO_THROW(account::check_wire_bytes(formula, std::span(&counted, 1), setup.plan, c));
    counted.all_to_all += 1;
    EXPECT_THROW(account::check_wire_bytes(formula, std::span(&counted, 1), setup.plan, c), Error);
  }
}

TEST(ExpertTraining, GoesOnFromACheckpointOfAnySplit) {
  const auto training = [](std::int64_t ranks, std::int64_t expert) {
    return split_mixture(ranks, expert, [&](RunConfig& c) {
      c.train.optimizer = Optimizer::adamw;
      c.train.learning_rate = 1e-3;
      c.train.steps = 5;
      c.train.batch_per_rank = 12 / ranks;
      c.model.router_aux_loss = 0;  // of a rank's tokens, which are others on other meshes
    });
  };
  const std::vector<std::pair<std::int64_t, std::int64_t>> meshes{{4, 2}, {3, 3}, {2, 1}};
  for (const auto& [ranks, expert] : meshes) {
    const TemporaryFolder folder;
    const auto step = testing::checkpoint_after(2, training(ranks, expert), folder);
    for (const auto& [then_ranks, then_expert] : meshes) {
      SCOPED_TRACE(::testing::Message() << expert << " of " << ranks << ", then " << then_expert << " of "
                                        << then_ranks);
      const Measurement rest = testing::resumed(training(then_ranks, then_expert), step);
      const Measurement whole = testing::run_tiny(training(then_ranks, then_expert));
      if (ranks == then_ranks && expert == then_expert) {
        EXPECT_EQ(rest.parameters_digest, whole.parameters_digest);
      }
      ASSERT_EQ(rest.losses.size(), 3U);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest.losses[i], whole.losses[i + 2], 1e-4);
    }
  }
}

/// Every rank gets the whole batch of a step: the loss that asks for balanced experts is one batch's, and no sum of
/// what parts of it would say.
class WholeBatches : public BatchSource {
 public:
  WholeBatches(const testing::GoldenDecoder& golden, int ranks)
      : golden_(golden), batch_(golden.train().batch_per_rank), ranks_(ranks) {}
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    golden_.tokens(sample / (ranks_ * batch_) * batch_ + sample % batch_, out);
  }
  void features(std::int64_t, std::span<float>, std::span<float>) const override {}

 private:
  testing::GoldenTokens golden_;
  std::int64_t batch_;
  int ranks_;
};

/// As tests/golden/make_decoder.py, where no ranks split the experts.
void expect_pytorchs_training(const std::string& name, ExpertOverlap overlap) {
  const testing::GoldenDecoder golden(name);
  for (const auto& [ranks, expert] : {std::pair{2, 2}, {3, 3}, {4, 2}}) {
    RunConfig c;
    c.mesh.expert_overlap = overlap;
    c.model = golden.model();
    c.train = golden.train();
    c.mesh.ranks = ranks;
    c.mesh.expert = expert;
    c = testing::settled(c);
    const engine::Setup p = set_up(c);
    const Measurement result =
        run(*backend::cpu::make_cpu_backend(), p, WholeBatches(golden, ranks), testing::golden_hooks(golden, p.plan));
    testing::expect_golden(result, golden, p.plan, 1e-6, 3e-5);
  }
}

TEST(ExpertTraining, DecoderTrainsAsPyTorchDoes) {
  expect_pytorchs_training("decoder_experts", ExpertOverlap::none);
  for (const ExpertOverlap overlap : {ExpertOverlap::none, ExpertOverlap::combine, ExpertOverlap::both}) {
    expect_pytorchs_training("decoder_shared_expert", overlap);
  }
}

}  // namespace
}  // namespace fsdpbench::engine
