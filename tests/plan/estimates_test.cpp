// Bytes that ranks send, by hand.
#include <gtest/gtest.h>

#include "plan/communication.h"
#include "support/communication_formula.h"

namespace fsdpbench::plan {
namespace {

using namespace config;  // NOLINT: nothing here but settings

RunConfig sharded(const Model& model, int ranks) {
  RunConfig c;
  c.model = model;
  c.mesh = {ranks, ranks, 1};
  if (ranks == 1) c.fsdp.strategy = Strategy::no_shard;
  return c;
}

/// An mlp of exactly 1e9 parameters: one layer of in x out weights and out biases.
Model one_billion() {
  Model m;
  m.kind = ModelKind::mlp;
  m.layers = 1;
  m.in_features = 31249;
  m.out_features = 32000;
  return m;
}

Model llama3_70b() {
  Model m;
  m.layers = 80;
  m.width = 8192;
  m.heads = 64;
  m.kv_heads = 8;
  m.ffn_width = 28672;
  m.vocab = 128256;
  return m;
}

/// One adapter per product, by hand: rank 16 beside w [out, in] is 16 (in + out) elements. Only adapters are reduced;
/// all is gathered.
TEST(CommunicationVolume, OfAdaptersByHand) {
  Model m = llama3_70b();
  m.layers = 32, m.width = 4096, m.heads = 32, m.ffn_width = 14336;  // llama3-8b
  m.lora_rank = 16;
  const RunConfig adapters = sharded(m, 8);
  const double trained = 32.0 * 16 * (2 * 8192 + 2 * (4096 + 1024) + 3 * (4096 + 14336));
  const Plan plan = make_plan(adapters);
  EXPECT_DOUBLE_EQ(static_cast<double>(plan.shapes.trained_count()), trained);
  const CommunicationVolume sent = communication_volume(plan, adapters, {std::vector<bool>(plan.units.size())});
  EXPECT_DOUBLE_EQ(sent.reduce_scatter, 4 * trained * 7 / 8);
  EXPECT_DOUBLE_EQ(sent.all_gather, 4 * static_cast<double>(plan.shapes.parameter_count()) * 7 / 8);
}

TEST(CommunicationVolume, AgainstDataParallel) {
  RunConfig c = sharded(llama3_70b(), 8);
  const Plan plan = make_plan(c);
  const auto ratio = [&](bool reshards) {
    const std::vector<bool> all(plan.units.size(), reshards);
    return communication_volume(plan, c, {all}).total() / data_parallel_volume(plan, c);
  };
  EXPECT_NEAR(ratio(true), 1.5, 1e-6);
  EXPECT_NEAR(ratio(false), 1.0, 1e-6);
}

TEST(CommunicationVolume, ClosedForms) {
  RunConfig c = sharded(one_billion(), 8);
  const double bytes = 4e9;
  const Plan full = make_plan(c);
  const CommunicationVolume v = communication_volume(full, c, {{false, true}});
  EXPECT_NEAR(v.all_gather, 2 * 7.0 / 8 * bytes, 1e3);
  EXPECT_NEAR(v.reduce_scatter, 7.0 / 8 * bytes, 1e3);
  EXPECT_EQ(v.all_reduce, 0);

  c.fsdp.strategy = Strategy::no_shard;
  c.mesh = {8, 1, 8};
  EXPECT_NEAR(communication_volume(make_plan(c), c, {{false, false}}).total(), 2 * 7.0 / 8 * bytes, 1e3);

  c.fsdp.strategy = Strategy::hybrid_shard;  // F = 4, R = 2: only the last term crosses replicas
  c.mesh = {8, 4, 2};
  const CommunicationVolume hybrid = communication_volume(make_plan(c), c, {{false, true}});
  EXPECT_NEAR(hybrid.all_gather + hybrid.reduce_scatter, 3 * 3.0 / 4 * bytes, 1e3);
  EXPECT_NEAR(hybrid.all_reduce, 2 * 1.0 / 2 * bytes / 4, 1e3);
}

/// Three blocks of 640 elements in matrices and 16 in norms, a root of 512 and 8.
RunConfig small(int shard) {
  RunConfig c;
  c.model.layers = 3;
  c.model.width = 8;
  c.model.heads = 2;
  c.model.kv_heads = 2;
  c.model.ffn_width = 16;
  c.model.vocab = 32;
  c.train.batch_per_rank = 2;
  c.train.seq_len = 4;
  c.train.accumulate = 3;
  c.mesh = {shard, shard, 1};
  return c;
}

CommunicationVolume volume_of(const RunConfig& c) {
  const Plan plan = make_plan(c);
  return communication_volume(plan, c, {std::vector<bool>(plan.units.size(), true)});
}

TEST(CommunicationVolume, WholeGradientsAreSummedAlongBothAxes) {
  RunConfig c = small(8);
  c.fsdp.strategy = Strategy::hybrid_shard;
  c.mesh = {8, 4, 2};
  c.fsdp.shard_threshold = 9;
  c.train.accumulate = 2;
  const double across = 2 * (3 * 640 + 512) / 4.0 * 4 / 2, norms = (3 * (16 + 8) + 8) * 4;  // each begins at 64 bytes
  c.train.accumulate_mode = AccumulateMode::no_sync;
  EXPECT_DOUBLE_EQ(volume_of(c).all_reduce, across + 2 * (norms * 3 / 4 + norms / 2));
  c.train.accumulate_mode = AccumulateMode::reduce_each;
  EXPECT_DOUBLE_EQ(volume_of(c).all_reduce, 2 * across + 2 * 2 * (norms * 3 / 4 + norms / 2));
  c.train.accumulate_mode = AccumulateMode::reduce_scatter_only;
  EXPECT_DOUBLE_EQ(volume_of(c).all_reduce, across + 2 * 2 * (norms * 3 / 4 + norms / 2));
  EXPECT_DOUBLE_EQ(data_parallel_volume(make_plan(c), c), 2 * 2 * 4 * (3 * 656 + 520) * 7.0 / 8);
  c.train.accumulate_mode = AccumulateMode::no_sync;
  EXPECT_DOUBLE_EQ(data_parallel_volume(make_plan(c), c), 2 * 4 * (3 * 656 + 520) * 7.0 / 8);
}

/// 8 tokens of 8 floats; two of three blocks are recomputed.
TEST(CommunicationVolume, OfRanksThatSplitLayersByHand) {
  RunConfig c = small(1);
  c.mesh = {2, 1, 1, 2};
  c.fsdp.strategy = Strategy::no_shard;
  c.fsdp.activation_checkpointing = true;
  c.fsdp.checkpoint_every = 2;
  const double stream = 8 * 8 * 4 / 2, floats = 3 * 8 * 2 * 4 / 2;
  EXPECT_DOUBLE_EQ(volume_of(c).all_reduce, 3 * (2 + 4 * 3 + 2) * 2 * stream);
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather, 3 * floats);
  c.train.clip_norm = 1;
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather, 3 * floats + 8);
  c.train.clip_norm = 0;
  c.mesh.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(volume_of(c).reduce_scatter, 3 * (2 + 4 * 3 + 2) * stream);
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather, 3 * (3 + 6 * 3 + 2 * 2) * stream + 3 * floats);
  EXPECT_DOUBLE_EQ(volume_of(c).all_reduce, 3 * 2 * 7 * 8 * 4 / 2) << "seven norms";
  c.model.norm = Norm::layer;
  c.model.bias = true;
  EXPECT_DOUBLE_EQ(volume_of(c).all_reduce, 3 * 2 * (2 * 7 + 2 * 3) * 8 * 4 / 2) << "with biases, two a block";
  c.fsdp.activation_checkpointing = false;
  EXPECT_DOUBLE_EQ(volume_of(c).reduce_scatter, 3 * (2 + 4 * 3) * stream);
  // The norm: a double of each rank that shards, and of each group that splits layers.
  c = small(4);
  const double without = volume_of(c).all_gather;
  c.train.clip_norm = 1;
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather - without, 8 * 3);
}

TEST(CommunicationVolume, OfRanksThatSplitSequencesByHand) {
  RunConfig c = small(2);
  c.fsdp.activation_checkpointing = true;
  c.fsdp.checkpoint_every = 2;
  const CommunicationVolume before = volume_of(c);
  c.mesh.context = 2;
  const double each = 3 * (2 * 2 * 4) * 8 * 4 / 2;  // keys and values of two heads of 4, in three microbatches
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather - before.all_gather, each * (2 * 3 + 2));
  EXPECT_DOUBLE_EQ(volume_of(c).reduce_scatter - before.reduce_scatter, each * 3);
}

/// 16 visits of 8 tokens.
TEST(CommunicationVolume, OfRanksThatSplitExpertsByHand) {
  RunConfig c = small(2);
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh.expert = 2;
  c.mesh.expert_sync = true;
  c.mesh.expert_imbalance = 1.5;
  c.fsdp.activation_checkpointing = true;
  c.fsdp.checkpoint_every = 2;
  const double rows = 12 * 8 * 4, told = 2 * 4;
  EXPECT_DOUBLE_EQ(volume_of(c).all_to_all, 3 * (2 * (2 * 3 + 2) * rows + (3 + 2) * told));
  c.fsdp.checkpoint_keeps = CheckpointKeeps::attention;
  EXPECT_DOUBLE_EQ(volume_of(c).all_to_all, 3 * (2 * 2 * 3 * rows + 3 * told)) << "what came is kept";
  c.mesh.expert_sync = false;
  EXPECT_DOUBLE_EQ(volume_of(c).all_to_all, 3 * 2 * 2 * 3 * rows);
}

TEST(CommunicationVolume, AUnitThatIsKeptIsGatheredOnce) {
  RunConfig c = small(4);
  const double all = 4 * (3 * 656 + 520) * 3 / 4.0;
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather, 2 * 3 * all);
  c.fsdp.reshard_after_backward = false;
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather, (1 + 3) * all);
  c.fsdp.reshard_after_backward = true;
  c.fsdp.keep_unreduced = true;
  c.train.accumulate_mode = AccumulateMode::no_sync;
  EXPECT_DOUBLE_EQ(volume_of(c).all_gather, 2 * 3 * all) << "which some units do not stand";
  const Plan plan = make_plan(c);
  const std::vector<bool> none(plan.units.size());
  EXPECT_DOUBLE_EQ(communication_volume(plan, c, {none}).all_gather, all);
  EXPECT_DOUBLE_EQ(communication_volume(plan, c, {none, std::vector<int>(plan.units.size(), 2)}).all_gather, 3 * all)
      << "two gathers of each that nobody used";
  c.train.accumulate_mode = AccumulateMode::reduce_each;
  EXPECT_DOUBLE_EQ(communication_volume(plan, c, {none}).all_gather, 3 * all);
}

/// A group of one rank, or of all, is no group of fewer.
TEST(Plan, UnitsLieInASmallerGroupOnlyWhereThereIsOne) {
  RunConfig c = small(4);
  for (const int group : {1, 2, 4}) {
    c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, group};
    const Plan plan = make_plan(c);
    EXPECT_EQ(plan.groups.size(Group::reshard), group == 2 ? 2 : 1);
    ASSERT_EQ(plan.units[1].group_layout.size(), group == 2 ? 1U : 0U) << group;
    if (group == 2) {
      EXPECT_EQ(plan.units[1].group_layout.front().shard_numel, 2 * plan.units[1].layout.shard_numel);
    }
  }
  c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::always, 2};
  EXPECT_TRUE(make_plan(c).units[1].group_layout.empty());
}

}  // namespace
}  // namespace fsdpbench::plan
