// The orders of Megatron-FSDP and DeepSpeed with experts split over ranks (mesh.expert), as their rules give them for
// three blocks and a root. A schedule that differs by one position fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "support/check_schedules.h"
#include "support/engine_orders.h"

namespace fsdpbench::schedule {
namespace {

using config::Prefetch;

/// Four experts a block on four ranks, of which two split them.
config::RunConfig mixture(const std::string& preset) {
  config::RunConfig c = testing::decoder_config(3, 4);
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh.expert = 2;
  return testing::with_preset(c, preset);
}

std::int64_t elements(const config::RunConfig& config, bool of_experts) {
  const plan::Plan plan = plan::make_plan(config);
  const plan::Unit& block = plan.units[1];
  return (of_experts ? plan.units[static_cast<std::size_t>(block.experts)] : block).layout.parameter_numel();
}

config::RunConfig windowed(const std::string& preset, std::int64_t numel) {
  config::RunConfig c = mixture(preset);
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, numel};
  return c;
}

TEST(MegatronExpertOrder, BucketsOfExpertsCountByThemselves) {
  EXPECT_EQ(order(windowed("megatron-moe", 1)),
            "AGR AG0* FR AGE0 AG1* F0 f0 fE0 AGE1 AG2* F1 f1 fE1 AGE2 F2 f2 fE2 | BR AGE1* AG2 AGE2 B2 RSE2 "
            "fE2 f2 RS2 AGE0* AG1 B1 RSE1 fE1 f1 RS1 AG0 B0 RSE0 fE0 f0 RS0 fR RSR");
  const config::RunConfig c = mixture("megatron-moe");
  EXPECT_EQ(elements(c, true), 4 / 2 * 3 * c.model.width * c.model.ffn_width) << "those of one rank, of two";
  EXPECT_EQ(order(windowed("megatron-moe", elements(c, false))), order(windowed("megatron-moe", 1)));
  EXPECT_EQ(order(windowed("megatron-moe", elements(c, false) + 1)),
            "AGR AG0* AGE0* FR AG1* AGE1* F0 f0 fE0 AG2* AGE2* F1 f1 fE1 F2 f2 fE2 | BR AGE1* AG2 AGE2 B2 "
            "RSE2 fE2 f2 RS2 AGE0* AG1 B1 RSE1 fE1 f1 RS1 AG0 B0 RSE0 fE0 f0 RS0 fR RSR");
  EXPECT_EQ(order(windowed("megatron-moe", elements(c, false) + elements(c, true) + 1)),
            "AGR AG0* AGE0* AG1* FR AGE1* AG2* F0 f0 fE0 AGE2* F1 f1 fE1 F2 f2 fE2 | BR AGE0* AG1* AGE1* AG2 "
            "AGE2 B2 RSE2 fE2 f2 RS2 AG0* B1 RSE1 fE1 f1 RS1 B0 RSE0 fE0 f0 RS0 fR RSR");
}

TEST(MegatronExpertOrder, ItsRewriteListsBlocksAndExpertsOneByOne) {
  EXPECT_EQ(order(mixture("megatron-v2-moe")),
            "AGR AG0* FR AGE0* F0 AG1* fE0 f0 AGE1* F1 AG2* fE1 f1 AGE2* F2 fE2 f2 fR | AGR AG2* BR AGE2* B2 "
            "AG1* fE2 RSE2 f2 RS2 AGE1* B1 AG0* fE1 RSE1 f1 RS1 AGE0* B0 fE0 RSE0 f0 RS0 fR RSR");
  config::RunConfig deeper = mixture("megatron-v2-moe");
  deeper.fsdp.forward_prefetch.depth = deeper.fsdp.backward_prefetch.depth = 2;
  EXPECT_EQ(order(deeper),
            "AGR AG0* FR AGE0* AG1* F0 AGE1* fE0 f0 AG2* F1 AGE2* fE1 f1 F2 fE2 f2 fR | AGR AG2* BR AGE2* "
            "AG1* B2 AGE1* fE2 RSE2 f2 RS2 AG0* B1 AGE0* fE1 RSE1 f1 RS1 B0 fE0 RSE0 f0 RS0 fR RSR");
  config::RunConfig recomputed = mixture("megatron-v2-moe");
  recomputed.fsdp.activation_checkpointing = true;
  EXPECT_EQ(collectives(recomputed), collectives(mixture("megatron-v2-moe"))) << "which prefetches nothing";
}

TEST(MegatronExpertOrder, ItsRewriteHasHooksBetweenTheExchanges) {
  const testing::ScheduleCase c = testing::make_case(mixture("megatron-v2-moe"));
  std::string line;
  for (const Op& op : c.schedules.steady().ops) {
    const bool of_first = op.unit == 1 || op.unit == c.plan.units[1].experts;
    const bool pass = op.kind == OpKind::forward || op.kind == OpKind::backward || op.exchanges_rows();
    if (of_first && (pass || op.kind == OpKind::reshard || op.kind == OpKind::reduce_scatter)) {
      line += op_name(c.plan, op) + ", ";
    }
  }
  EXPECT_EQ(line,
            "forward blocks.0/0, expert_dispatch blocks.0, forward blocks.0/1, reshard E0, expert_combine "
            "blocks.0, forward blocks.0/2, reshard 0, backward blocks.0/0, expert_dispatch blocks.0, backward "
            "blocks.0/1, reshard E0, reduce_scatter E0, expert_combine blocks.0, backward blocks.0/2, reshard "
            "0, reduce_scatter 0, ");
}

/// FSDP2 goes back along its notes of forward, to which a recomputation that frees adds; a list names blocks and
/// experts.
TEST(NestedExpertOrder, GoesBackAlongNotesOrAList) {
  config::RunConfig c = mixture("torchtitan-moe");
  c.fsdp.expert_unit = config::ExpertUnit::module;
  c.fsdp.head_unit = false;
  c.fsdp.forward_prefetch = {Prefetch::Mode::implicit, 1};
  const auto backward = [&](Prefetch::Mode mode) {
    c.fsdp.backward_prefetch = {mode, 1};
    const std::string line = order(c);
    EXPECT_EQ(line.substr(0, line.find(" | ")), "AGR FR AG0 F0 AGE0 fE0 f0 AG1 F1 AGE1 fE1 f1 AG2 F2 AGE2 fE2 f2");
    return line.substr(line.find(" | ") + 3);
  };
  EXPECT_EQ(backward(Prefetch::Mode::none),
            "BR AG2 B2 AGE2 fE2 RSE2 f2 RS2 AG1 B1 AGE1 fE1 RSE1 f1 RS1 AG0 B0 AGE0 fE0 RSE0 f0 RS0 fR RSR");
  EXPECT_EQ(backward(Prefetch::Mode::pre),
            "AG2* BR AGE2* B2 AG1* fE2 RSE2 f2 RS2 AGE1* B1 AG0* fE1 RSE1 f1 RS1 AGE0* B0 fE0 RSE0 f0 RS0 fR RSR");
  EXPECT_EQ(backward(Prefetch::Mode::explicit_),
            "AG2* BR AG1* AGE1* B2 AGE2 fE2 RSE2 f2 RS2 AG0* AGE0* B1 fE1 RSE1 f1 RS1 B0 fE0 RSE0 f0 RS0 fR RSR");
  config::RunConfig first = c;  // its list is empty, so that it goes by notes
  first.model.layers = 1;
  EXPECT_EQ(order(first), "AGR FR AG0 F0 AGE0 fE0 f0 | AG0* BR AGE0* B0 fE0 RSE0 f0 RS0 fR RSR");
  c.fsdp.activation_checkpointing = c.fsdp.recompute_frees = true;
  EXPECT_EQ(
      backward(Prefetch::Mode::pre),
      "AG2* BR AGE2* fE2 B2 AGE2 fE2 RSE2 f2 RS2 AG1 AGE1* fE1 B1 AGE1 AGE2* fE1 RSE1 f1 RS1 AG0 AGE0* fE0 B0 AGE0"
      " AGE1* fE0 RSE0 f0 RS0 fR RSR");
}

/// Each microbatch goes back along its own notes where its backward is waited for, and from the root no farther than
/// the notes go.
TEST(NestedExpertOrder, NotesOfAMicrobatchAreItsOwn) {
  config::RunConfig c = mixture("torchtitan-moe");
  c.fsdp.expert_unit = config::ExpertUnit::module;
  c.fsdp.head_unit = false;
  c.fsdp.forward_prefetch = {Prefetch::Mode::none, 1};
  c.fsdp.backward_prefetch = {Prefetch::Mode::pre, 1};
  c.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::always;
  c.fsdp.wait_each_backward = true;
  const std::string one = order(c);
  c.train.accumulate = 2;
  EXPECT_EQ(order(c), one + " || " + one);
  const testing::ScheduleCase made = testing::make_case(c);
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind != OpKind::copy_in || op.unit != kRoot || op.phase != Phase::backward) continue;
    EXPECT_TRUE(op.waits.empty()) << "on demand, as ever: forward's limit is over";
  }
}

/// Without a list a unit of one parameter group goes back by one group, and a block by its block.
TEST(GroupedExpertOrder, GoesBackByOneGroupOrByOneBlock) {
  config::RunConfig c = mixture("torchtitan-moe");
  c.fsdp.head_unit = false;
  c.fsdp.forward_prefetch = {Prefetch::Mode::implicit, 1};
  const auto backward = [&](Prefetch::Mode mode, int depth) {
    c.fsdp.backward_prefetch = {mode, depth};
    const std::string line = collectives(c);
    EXPECT_EQ(line.substr(0, line.find(" | ")), "AGR AG0 AGE0 AG1 AGE1 AG2 AGE2");
    return line.substr(line.find(" | ") + 3);
  };
  EXPECT_EQ(backward(Prefetch::Mode::none, 1), "AG2 AGE2 RSE2 RS2 AG1 AGE1 RSE1 RS1 AG0 AGE0 RSE0 RS0 RSR");
  EXPECT_EQ(backward(Prefetch::Mode::pre, 1), "AGE2* AG2 AGE1* AG1* RSE2 RS2 AGE0* AG0* RSE1 RS1 RSE0 RS0 RSR");
  EXPECT_EQ(backward(Prefetch::Mode::explicit_, 1), "AGE2* AG2 AGE1* AG1* RSE2 RS2 AGE0* AG0* RSE1 RS1 RSE0 RS0 RSR");
  EXPECT_EQ(backward(Prefetch::Mode::explicit_, 2), "AGE2* AG2 AGE1* AG1* AGE0* AG0* RSE2 RS2 RSE1 RS1 RSE0 RS0 RSR");
}

TEST(DeepSpeedExpertOrder, ABucketIsReducedOncePerGroup) {
  config::RunConfig c = mixture("deepspeed-moe");
  EXPECT_EQ(order(c), "FR F0 F1 F2 | BR B2 B1 B0 AR{E0,E1,E2} AR{0,1,2,R} step AG{0,1,2,R} AG{E0,E1,E2}");
  const std::int64_t block = elements(c, false), experts = elements(c, true);
  c.fsdp.reduce_bucket = block + experts;
  EXPECT_EQ(order(c), "FR F0 F1 F2 | BR B2 B1 ARE2 AR2 B0 ARE1 AR1 ARE0 AR0 ARR step AG{0,1,2,R} AG{E0,E1,E2}");
  c.fsdp.reduce_bucket = block + 2 * experts;
  EXPECT_EQ(order(c), "FR F0 F1 F2 | BR B2 B1 AR{E1,E2} AR2 B0 AR{0,1,R} ARE0 step AG{0,1,2,R} AG{E0,E1,E2}");
  c.fsdp.reduce_bucket = 1;
  EXPECT_EQ(order(c), "FR F0 F1 F2 | BR B2 ARE2 B1 AR2 ARE1 B0 AR1 ARE0 AR0 ARR step AG{0,1,2,R} AG{E0,E1,E2}");
}

TEST(DeepSpeedExpertOrder, StageOneReducesGroupByGroup) {
  config::RunConfig c = mixture("deepspeed-z1");
  c.fsdp.expert_unit = config::ExpertUnit::bucket;
  EXPECT_EQ(order(c), "FR F0 F1 F2 | BR B2 B1 B0 AR{0,1,2,R} AR{E0,E1,E2} step AG{0,1,2,R} AG{E0,E1,E2}");
}

/// fsdp.expert_unit = "bucket": the block's exchange of gradients is behind the experts' reduction.
TEST(ExpertBucketOrder, ExpertsAreReducedBeforeTheRestOfTheirBlockGoesBack) {
  const auto last_before_reduction = [](config::ExpertUnit unit) {
    config::RunConfig c = mixture("megatron-v1");
    c.fsdp.expert_unit = unit;
    const testing::ScheduleCase made = testing::make_case(c);
    EXPECT_TRUE(check_schedules(made.schedules).empty());
    std::string last;
    for (const Op& op : made.schedules.steady().ops) {
      if (op.kind == OpKind::reduce_scatter && made.plan.units[static_cast<std::size_t>(op.unit)].is_experts()) break;
      if (op.kind == OpKind::backward || op.exchanges_rows()) last = op_name(made.plan, op);
    }
    return last;
  };
  EXPECT_EQ(last_before_reduction(config::ExpertUnit::bucket), "backward blocks.2/1");
  EXPECT_EQ(last_before_reduction(config::ExpertUnit::group), "backward blocks.2/2");
}

}  // namespace
}  // namespace fsdpbench::schedule
