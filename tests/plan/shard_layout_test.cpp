#include "plan/shard_layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "plan/plan.h"

namespace fsdpbench::plan {
namespace {

ModelShapes shapes_of(const std::vector<std::vector<std::int64_t>>& shapes) {
  ModelShapes result;
  result.modules.push_back({"m", ModuleKind::block, 0, {}});
  for (const auto& shape : shapes) {
    result.modules[0].parameters.push_back(static_cast<int>(result.parameters.size()));
    result.parameters.push_back({"p", shape, 0});
  }
  return result;
}

ShardLayout layout_of(const ModelShapes& shapes, config::Layout layout, int shards, std::int64_t threshold = 0) {
  return make_shard_layout(shapes, shapes.modules[0].parameters, layout, shards, threshold);
}

TEST(ShardLayout, PerParamFollowsTorchChunk) {
  // torch.chunk(10 rows, 4): chunks of 3, 3, 3, 1; of 5 rows over 4: 2, 2, 1 and an empty one.
  const ShardLayout l = layout_of(shapes_of({{10, 7}, {5}}), config::Layout::per_param, 4);
  EXPECT_EQ(l.sharded[0].chunk_rows, 3);
  EXPECT_EQ(l.sharded[1].chunk_rows, 2);
  EXPECT_EQ(l.shard_numel, 3 * 7 + 2);
  EXPECT_EQ(l.gathered_numel(), 4 * (3 * 7 + 2));
  EXPECT_EQ(l.padding_numel(), 4 * 23 - 75);
  ASSERT_EQ(l.pieces(3).size(), 1U);  // one row of the first parameter, nothing of the second
  EXPECT_EQ(l.pieces(3)[0].parameter_offset, 9 * 7);
  EXPECT_EQ(l.pieces(3)[0].count, 7);
  EXPECT_EQ(l.pieces(2)[1].parameter_offset, 4);
  EXPECT_EQ(l.pieces(2)[1].count, 1);
}

TEST(ShardLayout, FlatPadsAtTheEndOnly) {
  const ShardLayout l = layout_of(shapes_of({{10, 7}, {5}}), config::Layout::flat, 4);
  EXPECT_EQ(l.sharded[1].unsharded_offset, 72);  // 70, aligned to 16 bytes of fp32
  EXPECT_EQ(l.shard_numel, 20);                  // ceil(77 / 4)
  EXPECT_EQ(l.unsharded_numel, 80);
}

TEST(ShardLayout, AUnitSmallerThanTheRankCountLeavesRanksEmpty) {
  for (config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
    const ShardLayout l = layout_of(shapes_of({{3}}), layout, 8);
    EXPECT_EQ(l.shard_numel, 1);
    EXPECT_EQ(l.pieces(2).size(), 1U);
    EXPECT_TRUE(l.pieces(3).empty());
  }
}

TEST(ShardLayout, ThresholdKeepsSmallParametersWhole) {
  const ShardLayout l = layout_of(shapes_of({{10, 7}, {5}, {70}}), config::Layout::per_param, 4, 70);
  ASSERT_EQ(l.replicated.size(), 1U);
  EXPECT_EQ(l.replicated[0].parameter, 1);
  EXPECT_EQ(l.sharded.size(), 2U);
  EXPECT_TRUE(layout_of(shapes_of({{5}}), config::Layout::per_param, 1, 70).replicated.empty()) << "nobody to tell";
}

TEST(ShardLayout, PiecesCoverEveryElementOnceOnAnyMesh) {
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    std::vector<std::vector<std::int64_t>> dims;
    const int count = std::uniform_int_distribution<int>(1, 5)(random);
    for (int p = 0; p < count; ++p) {
      dims.push_back({std::uniform_int_distribution<std::int64_t>(1, 19)(random),
                      std::uniform_int_distribution<std::int64_t>(1, 9)(random)});
    }
    const ModelShapes shapes = shapes_of(dims);
    const int shards = std::uniform_int_distribution<int>(1, 9)(random);
    for (config::Layout layout : {config::Layout::flat, config::Layout::per_param}) {
      const ShardLayout l = layout_of(shapes, layout, shards);
      std::set<std::pair<int, std::int64_t>> seen;
      for (int shard = 0; shard < shards; ++shard) {
        std::set<std::int64_t> places;
        for (const ShardPiece& piece : l.pieces(shard)) {
          for (std::int64_t e = 0; e < piece.count; ++e) {
            EXPECT_TRUE(seen.insert({piece.parameter, piece.parameter_offset + e}).second);
            EXPECT_TRUE(places.insert(piece.shard_offset + e).second);
            EXPECT_LT(piece.shard_offset + e, l.shard_numel);
          }
        }
      }
      std::int64_t total = 0;
      for (const ParameterShape& p : shapes.parameters) total += p.numel();
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), total);
      EXPECT_EQ(l.parameter_numel(), total);
    }
  }
}

TEST(Units, TheRootOwnsWhatNoOtherUnitOwns) {
  config::Model model;
  model.layers = 5;
  const ModelShapes shapes = model_shapes(model);
  const auto units = wrap_units(shapes, {config::Wrap::Mode::blocks, 2, 0});
  ASSERT_EQ(units.size(), 4U);
  EXPECT_EQ(units[0].modules, (std::vector<int>{0, 6}));
  EXPECT_EQ(units[3].modules, (std::vector<int>{5}));  // the last one is smaller
  EXPECT_EQ(units[1].label, "0");
  std::size_t parameters = 0;
  for (const UnitMembers& unit : units) parameters += unit.parameters.size();
  EXPECT_EQ(parameters, shapes.parameters.size());
}

TEST(Units, OfAWholeModelHaveTheExpertsOfTheRoot) {
  config::RunConfig c;
  c.model.layers = 2;
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh = {.ranks = 4, .shard = 4, .replicate = 1};
  c.mesh.expert = 2;
  c.fsdp.wrap.mode = config::Wrap::Mode::model;
  c.fsdp.layout = config::Layout::per_param;
  const Plan plan = make_plan(c);
  ASSERT_EQ(plan.units.size(), 2U);
  EXPECT_EQ(plan.with_modules, 1);
  EXPECT_EQ(plan.units[0].experts, 1);
  EXPECT_EQ(plan.units[1].members.experts_of, 0);
  EXPECT_EQ(plan.units[1].label(), "ER");
  EXPECT_EQ(plan.units[1].group, Group::expert_shard);
}

TEST(Units, StayGatheredBelowTheThresholdIfAnybodyElseHasAPart) {
  config::RunConfig c;
  c.model.layers = 2;
  c.mesh = {.ranks = 2, .shard = 2, .replicate = 1};
  const std::int64_t numel = make_plan(c).units[1].layout.parameter_numel();
  const auto stays = [&](std::int64_t threshold) {
    c.fsdp.persistence_threshold = threshold;
    return make_plan(c).units[1].stays_gathered;
  };
  EXPECT_FALSE(stays(numel));
  EXPECT_TRUE(stays(numel + 1));
  c.mesh = {.ranks = 1, .shard = 1, .replicate = 1};
  EXPECT_FALSE(stays(numel + 1));
}

}  // namespace
}  // namespace fsdpbench::plan
