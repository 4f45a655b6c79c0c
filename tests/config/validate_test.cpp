#include "config/validate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "config/fields.h"
#include "config/support.h"

namespace fsdpbench::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

struct Checked {
  RunConfig config;
  std::vector<std::string> notes;
};

Checked check(const std::function<void(RunConfig&)>& change) {
  Checked checked;
  change(checked.config);
  checked.notes = validate(checked.config);
  return checked;
}

std::string error(const std::function<void(RunConfig&)>& change) {
  return config_error([&] { check(change); });
}

TEST(Validate, WhatAGpuMayDoWithItsSums) {
  EXPECT_THAT(check([](RunConfig& c) {
                c.device.backend = BackendKind::cuda;
                c.device.deterministic = true;
              }).notes,
              IsEmpty());
  EXPECT_THAT(check([](RunConfig& c) { c.device.deterministic = true; }).notes,
              ElementsAre(HasSubstr("device.deterministic has no effect")));
}

TEST(Validate, DefaultsAreFineWithoutNotes) {
  const Checked checked = check([](RunConfig&) {});
  EXPECT_THAT(checked.notes, IsEmpty());
  EXPECT_EQ(checked.config.mesh.shard, 4);
  EXPECT_EQ(checked.config.mesh.replicate, 1);
}

/// Also far inside the range of its type a number may be none that anybody means, or that kernels and clocks can hold.
TEST(Validate, EveryNumberHasBounds) {
  const auto takes = [](const Field& field, const Value& value) {
    RunConfig scratch;
    return field.read(scratch, value);
  };
  int reals = 0, integers = 0;
  for (const Field& field : fields()) {
    for (const double extreme : {1e300, -1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
      EXPECT_FALSE(takes(field, extreme)) << field.name() << " = " << extreme;
    }
    const bool real = takes(field, 0.25) || takes(field, 2.5);
    const bool from_zero = takes(field, 0.0);  // what is as good as zero is no harm there
    if (real && !from_zero) {
      EXPECT_FALSE(takes(field, 1e-300)) << field.name();
    }
    reals += real ? 1 : 0;
    const bool integer = takes(field, std::int64_t{2});
    EXPECT_FALSE(takes(field, std::numeric_limits<std::int64_t>::min())) << field.name();
    if (!real && field.name() != "train.seed") {
      EXPECT_FALSE(takes(field, std::numeric_limits<std::int64_t>::max())) << field.name();
    }
    integers += integer && !real ? 1 : 0;
  }
  EXPECT_GE(reals, 15);
  EXPECT_GE(integers, 20);
  for (const char* text : {"explicit:65537", "strict:65537", "fsdp1_queue:1025", "blocks:65537"}) {
    EXPECT_TRUE(std::ranges::none_of(fields(), [&](const Field& field) {
      return field.key != "path" && field.key != "preset" && field.key != "folder" && field.key != "resume" &&
             field.key != "cluster" && field.key != "calibration" && takes(field, std::string(text));
    })) << text;
  }
}

TEST(Validate, SchedulesThatNobodyCanHoldAreRefused) {
  EXPECT_THAT(error([](RunConfig& c) { c.model.layers = 4096, c.train.accumulate = 65536; }),
              HasSubstr("is 268435456; expected at most 32768"));
  check([](RunConfig& c) { c.model.layers = 4096, c.train.accumulate = 8; });
}

TEST(Validate, MeasuredJitterIsThatOfACalibrationAndNoOther) {
  const auto simulated = [](RunConfig& c) {
    c.device.backend = BackendKind::virtual_;
    c.emulate = {1.0, 0.0, 1.0};
    c.simulate.measured_jitter = true;
  };
  EXPECT_THAT(error(simulated), HasSubstr("simulate.measured_jitter = true needs simulate.calibration"));
  EXPECT_THAT(error([&](RunConfig& c) { simulated(c), c.simulate.calibration = "c.toml", c.simulate.jitter_pct = 2; }),
              HasSubstr("simulate.jitter_pct = 2 both say how ops scatter"));
  check([&](RunConfig& c) { simulated(c), c.simulate.calibration = "c.toml"; });
}

TEST(Validate, IsIdempotent) {
  Checked once = check([](RunConfig& c) { c.mesh = {8, 4, 0}, c.fsdp.strategy = Strategy::hybrid_shard; });
  const RunConfig first = once.config;
  validate(once.config);
  EXPECT_EQ(once.config, first);
}

TEST(Validate, TheBatchOfARankFollowsFromTheGlobalOne) {
  const auto per_rank = [](Mesh mesh, std::int64_t accumulate, Strategy strategy = Strategy::full_shard) {
    return check([=](RunConfig& c) {
             c.train.batch_global = 48, c.train.accumulate = accumulate, c.mesh = mesh, c.fsdp.strategy = strategy;
           })
        .config.train.batch_per_rank;
  };
  EXPECT_EQ(per_rank({1, 0, 0}, 1), 48);
  EXPECT_EQ(per_rank({6, 0, 0}, 1), 8);
  EXPECT_EQ(per_rank({6, 0, 0}, 4), 2);
  EXPECT_EQ(per_rank({6, 2, 0}, 1, Strategy::hybrid_shard), 8);
  EXPECT_EQ(per_rank({16, 0, 0}, 3, Strategy::no_shard), 1);
  EXPECT_EQ(check([](RunConfig& c) { c.train.batch_per_rank = 5; }).config.train.batch_per_rank, 5);
  EXPECT_THAT(check([](RunConfig& c) { c.train.batch_global = 16, c.train.batch_per_rank = 3; }).notes,
              Contains("train.batch_per_rank = 4 follows from train.batch_global = 16; 3 is not used."));
  EXPECT_THAT(
      error([](RunConfig& c) { c.train.batch_global = 16, c.mesh.ranks = 3, c.train.accumulate = 2; }),
      HasSubstr("train.batch_global = 16 cannot be split evenly over 3 ranks and train.accumulate = 2; expected a "
                "multiple of 6"));
  EXPECT_THAT(error([](RunConfig& c) { c.train.batch_global = std::int64_t{1} << 40; }),
              HasSubstr("makes train.batch_per_rank = 274877906944; expected an integer from 1 to 1048576"));
}

TEST(Validate, MeshFollowsFromTheStrategy) {
  const auto mesh = [](Strategy strategy, Mesh given) {
    return check([=](RunConfig& c) { c.fsdp.strategy = strategy, c.mesh = given; }).config.mesh;
  };
  EXPECT_EQ(mesh(Strategy::no_shard, {6, 0, 0}), (Mesh{6, 1, 6}));
  EXPECT_EQ(mesh(Strategy::shard_grad_op, {6, 0, 0}), (Mesh{6, 6, 1}));
  EXPECT_EQ(mesh(Strategy::full_shard, {6, 6, 1}), (Mesh{6, 6, 1}));
  EXPECT_EQ(mesh(Strategy::hybrid_shard, {6, 2, 0}), (Mesh{6, 2, 3}));
  EXPECT_EQ(mesh(Strategy::hybrid_shard_grad_op, {6, 0, 2}), (Mesh{6, 3, 2}));
}

TEST(Validate, ShardsAndReplicasShareWhatRanksThatSplitLayersLeave) {
  const auto mesh = [](Strategy strategy, Mesh given) {
    return check([=](RunConfig& c) { c.fsdp.strategy = strategy, c.mesh = given; }).config.mesh;
  };
  EXPECT_EQ(mesh(Strategy::full_shard, {8, 0, 0, 2}), (Mesh{8, 4, 1, 2}));
  EXPECT_EQ(mesh(Strategy::no_shard, {8, 0, 0, 2}), (Mesh{8, 1, 4, 2}));
  EXPECT_EQ(mesh(Strategy::full_shard, {2, 0, 0, 2}), (Mesh{2, 1, 1, 2}));
  EXPECT_EQ(mesh(Strategy::hybrid_shard, {8, 2, 0, 2}), (Mesh{8, 2, 2, 2}));
}

TEST(Validate, LayersThatCannotBeSplit) {
  const auto message = [](const std::function<void(RunConfig&)>& change) {
    return error([&](RunConfig& c) { c.mesh.tensor = 2, change(c); });
  };
  EXPECT_EQ(message([](RunConfig& c) { c.mesh.ranks = 5; }), "mesh.tensor = 2 does not divide mesh.ranks = 5.");
  EXPECT_EQ(message([](RunConfig& c) { c.model.ffn_width = 351; }),
            "mesh.tensor = 2 does not divide model.ffn_width = 351.");
  EXPECT_EQ(message([](RunConfig& c) { c.model.vocab = 257; }), "mesh.tensor = 2 does not divide model.vocab = 257.");
  EXPECT_EQ(message([](RunConfig& c) { c.mesh.tensor = 4; }), "mesh.tensor = 4 does not divide model.kv_heads = 2.");
  EXPECT_EQ(message([](RunConfig& c) { c.model.kind = ModelKind::mlp; }),
            "mesh.tensor = 2 splits the layers of a decoder: model.kind is \"mlp\".");
  EXPECT_THAT(message([](RunConfig& c) { c.model.qk_norm = true; }), HasSubstr("model.qk_norm"));
  EXPECT_THAT(message([](RunConfig& c) { c.model.experts = 4, c.model.active_experts = 2; }),
              HasSubstr("model.experts = 4: experts are not split"));
}

TEST(Validate, TokensThatCannotBeSplit) {
  EXPECT_EQ(error([](RunConfig& c) {
              c.mesh.tensor = 2, c.mesh.sequence_parallel = true, c.train.batch_per_rank = 3, c.train.seq_len = 5;
            }),
            "mesh.sequence_parallel splits the tokens of a microbatch, and mesh.tensor = 2 does not divide "
            "train.batch_per_rank * train.seq_len = 3 * 5.");
  // The batch that follows from the global one counts.
  EXPECT_THAT(check([](RunConfig& c) {
                c.mesh.tensor = 2, c.mesh.sequence_parallel = true, c.train.seq_len = 5, c.train.batch_per_rank = 1;
                c.train.batch_global = 4;
              }).notes,
              ElementsAre(HasSubstr("train.batch_per_rank = 2 follows")));
  EXPECT_THAT(check([](RunConfig& c) { c.mesh.sequence_parallel = true; }).notes,
              ElementsAre("mesh.sequence_parallel has no effect: mesh.tensor is 1."));
  // The model leaves out buffers by this key: of ranks that there are not, it must not.
  EXPECT_FALSE(check([](RunConfig& c) { c.mesh.sequence_parallel = true; }).config.mesh.sequence_parallel);
}

TEST(Validate, ImpossibleMeshes) {
  const auto message = [](Strategy strategy, Mesh mesh) {
    return error([=](RunConfig& c) { c.fsdp.strategy = strategy, c.mesh = mesh; });
  };
  EXPECT_EQ(
      message(Strategy::full_shard, {8, 4, 2}),
      "mesh.shard = 4 does not fit fsdp.strategy = \"full_shard\" with mesh.ranks = 8; expected 8 (or leave it out); "
      "for fewer ranks a shard group use hybrid_shard or hybrid_shard_grad_op.");
  EXPECT_EQ(message(Strategy::no_shard, {8, 1, 4}),
            "mesh.replicate = 4 does not fit fsdp.strategy = \"no_shard\" with mesh.ranks = 8; expected 8 (or leave it "
            "out).");
  EXPECT_THAT(message(Strategy::hybrid_shard, {8, 0, 0}), HasSubstr("needs mesh.shard (ranks that split a unit) or"));
  EXPECT_EQ(message(Strategy::hybrid_shard, {8, 3, 0}), "mesh.shard = 3 does not divide mesh.ranks = 8.");
  EXPECT_EQ(message(Strategy::hybrid_shard, {8, 0, 3}), "mesh.replicate = 3 does not divide mesh.ranks = 8.");
  EXPECT_EQ(message(Strategy::hybrid_shard, {8, 4, 4}),
            "mesh.shard * mesh.replicate = 4 * 4 = 16 is not mesh.ranks = 8.");
  EXPECT_THAT(message(Strategy::full_shard, {1, 2, 0}), HasSubstr("do not fit mesh.ranks = 1"));
}

TEST(Validate, OneShardIsForPerParamOnly) {
  const auto one_shard = [](Layout layout) {
    return [layout](RunConfig& c) {
      c.fsdp.strategy = Strategy::hybrid_shard;
      c.fsdp.layout = layout;
      c.mesh = {8, 1, 8};
    };
  };
  EXPECT_THAT(error(one_shard(Layout::flat)), HasSubstr("with mesh.shard = 1 shards nothing"));
  const Checked checked = check(one_shard(Layout::per_param));
  EXPECT_EQ(checked.config.mesh, (Mesh{8, 1, 8}));
  EXPECT_THAT(checked.notes, ElementsAre(HasSubstr("mesh.shard = 1: fsdp.strategy = \"hybrid_shard\" shards nothing")));
}

TEST(Validate, OneRankOfFsdp2CopiesItsUnits) {
  const Checked checked = check([](RunConfig& c) { c.mesh.ranks = 1; });
  EXPECT_EQ(checked.config.fsdp.strategy, Strategy::full_shard);
  EXPECT_EQ(checked.config.mesh, (Mesh{1, 1, 1}));
  EXPECT_THAT(checked.notes, ElementsAre(HasSubstr("units are copied and freed as fully_shard does")));
}

TEST(Validate, OneRankOfFsdp1BehavesAsNoShard) {
  const Checked checked = check([](RunConfig& c) {
    c.mesh.ranks = 1;
    c.fsdp.layout = Layout::flat;
  });
  EXPECT_EQ(checked.config.fsdp.strategy, Strategy::no_shard);
  EXPECT_EQ(checked.config.mesh, (Mesh{1, 1, 1}));
  EXPECT_THAT(checked.notes, ElementsAre(HasSubstr("\"full_shard\" behaves as \"no_shard\"")));
}

TEST(Validate, RangesHoldForConfigurationsMadeByCodeToo) {
  EXPECT_EQ(error([](RunConfig& c) { c.mesh.ranks = 0; }),
            "mesh.ranks = 0 is not valid; expected an integer from 1 to 1048576.");
  EXPECT_THAT(error([](RunConfig& c) { c.train.steps = 0; }), HasSubstr("train.steps = 0 is not valid"));
  EXPECT_THAT(error([](RunConfig& c) { c.train.accumulate = 0; }), HasSubstr("train.accumulate = 0 is not valid"));
  EXPECT_THAT(error([](RunConfig& c) { c.train.warmup = -1; }), HasSubstr("train.warmup = -1 is not valid"));
  EXPECT_THAT(error([](RunConfig& c) { c.inject.slow_rank_factor = 0.5; }), HasSubstr("a number from 1 to 1000000"));
  EXPECT_THAT(error([](RunConfig& c) { c.fsdp.forward_prefetch.mode = Prefetch::Mode::pre; }),
              HasSubstr("fsdp.forward_prefetch = \"pre\" is not valid"));
}

/// Its bytes would not be those of the formula.
TEST(Validate, AStepThatLearnsWhatToKeepIsNotMeasured) {
  const auto learns = [](RunConfig& c) {
    c.train.warmup = 0;
    c.fsdp.learn_execution_order = true;
    c.fsdp.max_reuse_distance = 700;
  };
  EXPECT_THAT(error(learns), HasSubstr("train.warmup = 0 is too little: the first step learns the order of units"));
  check([&](RunConfig& c) { learns(c), c.train.warmup = 1; });
  check([&](RunConfig& c) { learns(c), c.mesh.ranks = 1; });
  check([&](RunConfig& c) { learns(c), c.fsdp.max_reuse_distance = 0; });
  check([&](RunConfig& c) { learns(c), c.fsdp.learn_execution_order = false; });
}

TEST(Validate, ModelShapes) {
  EXPECT_EQ(error([](RunConfig& c) { c.model.heads = 3; }), "model.width = 128 is not a multiple of model.heads = 3.");
  EXPECT_EQ(error([](RunConfig& c) { c.model.kv_heads = 3; }),
            "model.heads = 4 is not a multiple of model.kv_heads = 3.");
  EXPECT_THAT(error([](RunConfig& c) { c.model.width = 12; }), HasSubstr("is odd"));
  EXPECT_THAT(error([](RunConfig& c) { c.model.vocab = 255; }), HasSubstr("at least 256"));
  check([](RunConfig& c) { c.model.kind = ModelKind::mlp, c.model.heads = 3, c.model.vocab = 2; });
}

TEST(Validate, ReshardGroupDividesTheShardGroup) {
  const auto group = [](int n) { return ReshardAfterForward{ReshardAfterForward::Mode::group, n}; };
  check([&](RunConfig& c) { c.fsdp.reshard_after_forward = group(2); });
  EXPECT_EQ(error([&](RunConfig& c) { c.fsdp.reshard_after_forward = group(3); }),
            "fsdp.reshard_after_forward = 3 does not divide the shard group of 4 ranks.");
  EXPECT_EQ(error([&](RunConfig& c) {
              c.fsdp.reshard_after_forward = group(4), c.fsdp.strategy = Strategy::hybrid_shard, c.mesh.shard = 2;
            }),
            "fsdp.reshard_after_forward = 4 does not divide the shard group of 2 ranks.");
}

TEST(Validate, AccumulateModeOfHybridOnly) {
  const Checked plain = check([](RunConfig& c) { c.train.accumulate_mode = AccumulateMode::reduce_scatter_only; });
  EXPECT_EQ(plain.config.train.accumulate_mode, AccumulateMode::reduce_each);
  EXPECT_THAT(plain.notes, ElementsAre(HasSubstr("behaves as \"reduce_each\"")));
  const Checked hybrid = check([](RunConfig& c) {
    c.train.accumulate_mode = AccumulateMode::reduce_scatter_only, c.fsdp.strategy = Strategy::hybrid_shard,
    c.mesh.shard = 2;
  });
  EXPECT_EQ(hybrid.config.train.accumulate_mode, AccumulateMode::reduce_scatter_only);
  EXPECT_THAT(hybrid.notes, IsEmpty());
}

TEST(Validate, InjectedTroubleMustHitSomething) {
  EXPECT_EQ(error([](RunConfig& c) { c.inject.slow_rank = 4; }),
            "inject.slow_rank = 4 is no rank: mesh.ranks = 4, so expected -1 (none) or 0 to 3.");
  EXPECT_EQ(error([](RunConfig& c) { c.inject.slow_rank = 1; }),
            "inject.slow_rank = 1 needs inject.slow_rank_factor: how many times slower it is, more than 1.");
  EXPECT_EQ(error([](RunConfig& c) { c.inject.slow_link_rank = 1; }),
            "inject.slow_link_rank = 1 needs inject.slow_link_factor: how many times slower it is, more than 1.");
  EXPECT_THAT(error([](RunConfig& c) { c.inject.slow_link_rank = 1, c.inject.slow_link_factor = 2; }),
              HasSubstr("set emulate.link_gb_per_s"));
  EXPECT_THAT(error([](RunConfig& c) { c.inject.delay_rank = 9; }), HasSubstr("inject.delay_rank = 9 is no rank"));
  EXPECT_THAT(error([](RunConfig& c) { c.inject.delay_us = 9; }), HasSubstr("needs inject.delay_lane"));
  EXPECT_THAT(error([](RunConfig& c) { c.inject.host_sync_after_layer = 4; }), HasSubstr("is no layer"));
  EXPECT_THAT(error([](RunConfig& c) { c.inject.delay_lane = "gpu"; }), HasSubstr("the name of a lane"));
  EXPECT_THAT(check([](RunConfig& c) { c.inject.delay_lane = "copy"; }).notes, ElementsAre(HasSubstr("no effect")));
}

TEST(Validate, CopyEnginesOnlyMoveWindows) {
  const auto zero = [](RunConfig& c) {
    c.device.backend = BackendKind::cuda;
    c.nccl.cta_policy = CtaPolicy::zero;
  };
  EXPECT_EQ(
      error(zero),
      "nccl.cta_policy = \"zero\" needs nccl.register_buffers = \"window\": copy engines move nothing else, and NCCL "
      "would use CTAs without a word.");
  EXPECT_THAT(check([&](RunConfig& c) {
                zero(c);
                c.nccl.register_buffers = NcclRegister::window;
              }).notes,
              IsEmpty());
}

TEST(Validate, LatencyNeedsALink) {
  EXPECT_THAT(error([](RunConfig& c) { c.emulate.link_latency_us = 5; }), HasSubstr("set emulate.link_gb_per_s"));
}

TEST(Validate, DecodersThatAreOnlySimulated) {
  EXPECT_THAT(check([](RunConfig& c) { c.model.width = 130, c.model.head_dim = 32; }).notes, IsEmpty());
  EXPECT_EQ(error([](RunConfig& c) { c.model.head_dim = 33; }),
            "model.head_dim = 33 is odd; rotary embedding turns pairs, so it must be even.");
  EXPECT_THAT(check([](RunConfig& c) { c.model.head_dim = 33, c.model.learned_positions = 128; }).notes, IsEmpty());
  EXPECT_EQ(error([](RunConfig& c) { c.model.learned_positions = 100; }),
            "train.seq_len = 128 is longer than the table of model.learned_positions = 100.");
  EXPECT_EQ(error([](RunConfig& c) { c.model.experts = 8; }),
            "model.active_experts = 0 does not fit model.experts = 8; expected 1 to 8.");
  EXPECT_EQ(error([](RunConfig& c) {
              c.model.experts = 4096, c.model.active_experts = 1, c.model.width = 1 << 20, c.model.ffn_width = 1 << 20;
            }),
            "model.experts = 4096 of 1048576 x 1048576 weights are too many; expected at most 16 of that size.");
  EXPECT_EQ(error([](RunConfig& c) { c.model.active_experts = 2; }),
            "model.active_experts = 2 does not fit model.experts = 0; expected 0, since there is nothing to choose.");
  EXPECT_THAT(check([](RunConfig& c) { c.model.full_attention_every = 2; }).notes,
              ElementsAre("model.full_attention_every has no effect: model.attention_window is 0."));
  EXPECT_THAT(
      check([](RunConfig& c) { c.fsdp.activation_checkpointing = true, c.model.kind = ModelKind::mlp; }).notes,
      ElementsAre("fsdp.activation_checkpointing has no effect: layers of model.kind = \"mlp\" keep nothing but "
                  "their input."));
  EXPECT_THAT(check([](RunConfig& c) { c.fsdp.recompute_share = 0.5, c.fsdp.checkpoint_every = 2; }).notes,
              ElementsAre("fsdp.checkpoint_every has no effect: fsdp.activation_checkpointing is false.",
                          "fsdp.recompute_share has no effect: fsdp.activation_checkpointing is false."));
  EXPECT_THAT(check([](RunConfig& c) { c.fsdp.checkpoint_keeps = CheckpointKeeps::products; }).notes,
              ElementsAre("fsdp.checkpoint_keeps has no effect: fsdp.activation_checkpointing is false."));
}

TEST(Validate, ALossNeedsLogits) {
  const auto eager = [](RunConfig& c) {
    c.device.backend = BackendKind::virtual_;
    c.emulate.compute_tflops = 1;
    c.emulate.link_gb_per_s = 1;
    c.simulate.loss = Simulate::Loss::eager;
  };
  EXPECT_THAT(check(eager).notes, ElementsAre());
  EXPECT_THAT(check([&](RunConfig& c) { eager(c), c.model.kind = ModelKind::mlp; }).notes,
              ElementsAre("simulate.loss has no effect: the loss of model.kind = \"mlp\" has no logits."));
}

TEST(Validate, FactsOfAClusterNeedOne) {
  const auto given = [](RunConfig& c) {
    c.device.backend = BackendKind::virtual_;
    c.emulate.compute_tflops = 1;
    c.emulate.link_gb_per_s = 1;
    c.simulate.collective_checks = true;
    c.simulate.placement = Simulate::Placement::spread;
  };
  for (const char* calibration : {"", "some.toml"}) {
    EXPECT_THAT(check([&](RunConfig& c) { given(c), c.simulate.calibration = calibration; }).notes,
                IsSupersetOf({"simulate.placement has no effect: no simulate.cluster names a machine.",
                              "simulate.collective_checks has no effect: no simulate.cluster names a machine."}));
  }
  EXPECT_THAT(check([&](RunConfig& c) { given(c), c.emulate = {}, c.simulate.cluster = "dgx-h100"; }).notes, IsEmpty());
  EXPECT_THAT(check([&](RunConfig& c) { given(c), c.device.backend = BackendKind::cpu; }).notes,
              ElementsAre(HasSubstr("[simulate] has no effect: device.backend = \"cpu\" measures this machine")));
}

TEST(Validate, TheHostUpdatesInFp32) {
  EXPECT_EQ(error([](RunConfig& c) { c.fsdp.state_dtype = DType::bf16, c.fsdp.cpu_offload = CpuOffload::all; }),
            "fsdp.state_dtype = \"bf16\" needs fsdp.cpu_offload = \"none\": the host updates in fp32.");
}

TEST(Validate, RegisteredMemoryIsSimulatedOnClusters) {
  const auto window = [](RunConfig& c) {
    c.device.backend = BackendKind::virtual_;
    c.simulate.cluster = "dgx-h100";
    c.emulate.link_gb_per_s.reset();
    c.nccl.register_buffers = NcclRegister::window;
  };
  EXPECT_THAT(check(window).notes, ElementsAre());
  EXPECT_THAT(check([&](RunConfig& c) { window(c), c.nccl.max_ctas = 4; }).notes,
              ElementsAre("[nccl] has no effect but for register_buffers: device.backend is \"virtual\"."));
  EXPECT_THAT(check([&](RunConfig& c) { window(c), c.nccl.register_buffers = NcclRegister::local; }).notes,
              ElementsAre("[nccl] has no effect: device.backend is \"virtual\"."));
}

TEST(Validate, WhatARecomputationKeepsIsSaidOnceAndForWholeLayers) {
  const auto keeps = [](RunConfig& c) {
    c.fsdp.activation_checkpointing = true;
    c.fsdp.checkpoint_keeps = CheckpointKeeps::every_second_product;
  };
  EXPECT_THAT(check(keeps).notes, ElementsAre());
  EXPECT_EQ(
      error([&](RunConfig& c) { keeps(c), c.fsdp.recompute_share = 0.5; }),
      "fsdp.checkpoint_keeps = \"every_second_product\" does not go with fsdp.recompute_share = 0.5: each says what "
      "is recomputed; expected 1.0.");
  EXPECT_EQ(error([&](RunConfig& c) { keeps(c), c.mesh.tensor = 2; }),
            "fsdp.checkpoint_keeps = \"every_second_product\" does not go with mesh.tensor = 2: which exchanges a "
            "recomputation then repeats is not modelled; expected 1.");
}

TEST(Validate, CastsInTheOptimizerAreForShardsInALowerDtypeOnTheDevice) {
  const auto casts = [](RunConfig& c) {
    c.fsdp.param_dtype = DType::bf16;
    c.fsdp.cast_in_optimizer = true;
  };
  EXPECT_THAT(check(casts).notes, IsEmpty());
  EXPECT_EQ(error([&](RunConfig& c) { casts(c), c.fsdp.cpu_offload = CpuOffload::optimizer; }),
            "fsdp.cast_in_optimizer = true needs fsdp.cpu_offload = \"none\", and it is \"optimizer\": there the host "
            "updates.");
  EXPECT_THAT(check([&](RunConfig& c) { casts(c), c.fsdp.param_dtype = DType::f32; }).notes,
              ElementsAre("fsdp.cast_in_optimizer has no effect: fsdp.param_dtype is \"fp32\", as the masters are."));
}

TEST(Validate, GradientsAreFp32Anyhow) {
  EXPECT_THAT(check([](RunConfig& c) { c.fsdp.fp32_gradients = true; }).notes,
              ElementsAre("fsdp.fp32_gradients has no effect: fsdp.param_dtype is \"fp32\"."));
}

TEST(Validate, OffloadNeedsHostMemoryAndAWayThere) {
  const auto offloads = [](RunConfig& c) { c.fsdp.cpu_offload = CpuOffload::all; };
  EXPECT_THAT(check(offloads).notes, IsEmpty());
  EXPECT_THAT(check([&](RunConfig& c) { offloads(c), c.device.backend = BackendKind::cuda; }).notes, IsEmpty());
  EXPECT_EQ(error([&](RunConfig& c) { offloads(c), c.emulate.pcie_latency_us = 5; }),
            "emulate.pcie_latency_us = 5 is the latency of the modelled PCIe, and there is none: set "
            "emulate.pcie_gb_per_s.");
  EXPECT_THAT(check([](RunConfig& c) { c.emulate.pcie_gb_per_s = 50; }).notes,
              ElementsAre("emulate.pcie_gb_per_s has no effect without fsdp.cpu_offload."));
  const auto simulated = [&](RunConfig& c) {
    offloads(c);
    c.device.backend = BackendKind::virtual_;
    c.emulate.compute_tflops = 1;
    c.emulate.link_gb_per_s = 1;
  };
  EXPECT_EQ(
      error(simulated),
      "fsdp.cpu_offload = \"all\" copies over PCIe, and device.backend = \"virtual\" moves no bytes: name a machine "
      "(simulate.cluster) or a bandwidth (emulate.pcie_gb_per_s).");
  EXPECT_THAT(check([&](RunConfig& c) { simulated(c), c.emulate.pcie_gb_per_s = 50; }).notes, IsEmpty());
}

TEST(Validate, FrozenParametersGoWithWhatPyTorchRecorded) {
  const auto frozen = [](const std::function<void(RunConfig&)>& change) {
    return error([&](RunConfig& c) {
      c.model.layers = 3;
      c.model.trainable = {Trainable::Mode::blocks, 1, 2};
      change(c);
    });
  };
  EXPECT_THAT(check([](RunConfig& c) { c.model.trainable = {Trainable::Mode::blocks, 1, 1}; }).notes, IsEmpty());
  EXPECT_THAT(frozen([](RunConfig& c) { c.model.trainable.last = 3; }),
              HasSubstr("model.trainable = \"blocks:1-3\" names a block that is not there; expected up to 2."));
  EXPECT_THAT(frozen([](RunConfig& c) {
                c.fsdp.backward_prefetch = {Prefetch::Mode::ahead, 2};
              }),
              HasSubstr("model.trainable freezes parameters, which does not go with fsdp.backward_prefetch = "
                        "\"ahead:2\"; expected"));
  EXPECT_THAT(frozen([](RunConfig& c) {
                c.model.lora_rank = 4;
                c.fsdp.layout = Layout::flat;
              }),
              HasSubstr("model.lora_rank freezes parts of a unit, which needs fsdp.layout = \"per_param\""));
}

TEST(Validate, APartIsKeptWhereASmallerGroupHasOne) {
  const auto kept = check([](RunConfig& c) {
    c.mesh.ranks = 4;
    c.fsdp.keep_group_shard = true;
  });
  EXPECT_THAT(kept.notes,
              ElementsAre("fsdp.keep_group_shard has no effect: fsdp.reshard_after_forward is no number of ranks."));
}

}  // namespace
}  // namespace fsdpbench::config
