#include "plan/shard_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

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
  EXPECT_EQ(l.sharded[0].unsharded_offset, 0);
  EXPECT_EQ(l.sharded[1].unsharded_offset, 96);  // 4 chunks of 21, aligned to 64 bytes of fp32
  EXPECT_EQ(l.unsharded_numel, 96 + 4 * 2);
}

TEST(ShardLayout, FlatPadsAtTheEndOnly) {
  const ShardLayout l = layout_of(shapes_of({{10, 7}, {5}}), config::Layout::flat, 4);
  EXPECT_EQ(l.sharded[1].unsharded_offset, 72);  // 70, aligned to 16 bytes of fp32
  EXPECT_EQ(l.shard_numel, 20);                  // ceil(77 / 4)
  EXPECT_EQ(l.unsharded_numel, 80);
  // Elements 60 to 69 of the first, two of padding, the second, and three more.
  using Row = std::array<std::int64_t, 4>;
  std::vector<Row> rows;
  for (const ShardPiece& p : l.pieces(3)) rows.push_back({p.parameter, p.parameter_offset, p.shard_offset, p.count});
  EXPECT_EQ(rows, (std::vector<Row>{{0, 60, 0, 10}, {1, 0, 12, 5}}));
}

TEST(ShardLayout, FrozenParametersComeLast) {
  ModelShapes shapes = shapes_of({{3}, {4}, {5}});
  shapes.parameters[0].frozen = true;
  const ShardLayout l = layout_of(shapes, config::Layout::flat, 2);
  EXPECT_EQ((std::array{l.sharded[0].parameter, l.sharded[1].parameter, l.sharded[2].parameter}),
            (std::array{1, 2, 0}));
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
  const ShardLayout two = layout_of(shapes_of({{5}, {70}, {7}}), config::Layout::per_param, 4, 70);
  ASSERT_EQ(two.replicated_pieces().size(), 2U);
  EXPECT_EQ(two.replicated_pieces()[1].parameter, 2);
  EXPECT_EQ(two.replicated_pieces()[1].shard_offset, 16);
  EXPECT_EQ(two.replicated_pieces()[1].count, 7);
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

/// An embedding of parameter 0, blocks of two parameters with ten elements each (the second experts'), a head of its
/// own parameter and the embedding's.
ModelShapes tied_model(int blocks) {
  ModelShapes shapes;
  const auto add = [&](ModuleKind kind, const std::vector<std::int64_t>& sizes) {
    ModuleShape module{"m", kind, 0, {}};
    for (const std::int64_t size : sizes) {
      module.parameters.push_back(static_cast<int>(shapes.parameters.size()));
      shapes.parameters.push_back({"p", {size}, static_cast<int>(shapes.modules.size())});
    }
    shapes.modules.push_back(module);
  };
  add(ModuleKind::embedding, {8});
  for (int i = 0; i < blocks; ++i) {
    add(ModuleKind::block, {4, 6});
    shapes.parameters.back().of_experts = true;
  }
  add(ModuleKind::head, {5});
  shapes.modules.back().parameters.push_back(0);
  return shapes;
}

/// "label:modules/parameters", of units of experts "label>the unit that has them:/parameters".
std::string wrapped(const ModelShapes& shapes, const config::Wrap& wrap, bool head_unit, bool apart) {
  std::string text;
  for (const UnitMembers& unit : wrap_units(shapes, wrap, head_unit, apart)) {
    text += (text.empty() ? "" : " ") + unit.label;
    if (unit.experts_of >= 0) text += '>' + std::to_string(unit.experts_of);
    text += ':';
    for (const int m : unit.modules) text += std::to_string(m);
    text += '/';
    for (const int p : unit.parameters) text += std::to_string(p);
  }
  return text;
}

TEST(Units, AreWrappedAsAsked) {
  using Mode = config::Wrap::Mode;
  struct Row {
    config::Wrap wrap;
    bool head_unit, apart;
    const char* units;
  };
  const ModelShapes four = tied_model(4), none = tied_model(0);
  for (const Row& row : {Row{{Mode::block, 1, 0}, false, false, "R:05/09 0:1/12 1:2/34 2:3/56 3:4/78"},
                         {{Mode::block, 1, 0}, true, false, "R:0/0 0:1/12 1:2/34 2:3/56 3:4/78 T:5/9"},
                         {{Mode::blocks, 3, 0}, false, false, "R:05/09 0:123/123456 1:4/78"},
                         {{Mode::min_size, 1, 10}, false, false, "R:05/09 0:1/12 1:2/34 2:3/56 3:4/78"},
                         {{Mode::min_size, 1, 11}, false, false, "R:05/09 0:12/1234 1:34/5678"},
                         {{Mode::min_size, 1, 20}, false, false, "R:05/09 0:12/1234 1:34/5678"},
                         {{Mode::min_size, 1, 21}, false, false, "R:05/09 0:123/123456 1:4/78"},
                         {{Mode::model, 1, 0}, true, false, "R:012345/0123456789"},
                         {{Mode::model, 1, 0}, false, true, "R:012345/013579 ER>0:/2468"},
                         {{Mode::blocks, 2, 0}, true, true, "R:0/0 0:12/13 1:34/57 T:5/9 E0>1:/24 E1>2:/68"}}) {
    EXPECT_EQ(wrapped(four, row.wrap, row.head_unit, row.apart), row.units);
  }
  EXPECT_EQ(wrapped(none, {Mode::block, 1, 0}, true, true), "R:01/01");
  ModelShapes mlp = tied_model(2);  // a loss without parameters has no unit of its own
  mlp.modules.back() = {"loss", ModuleKind::mean_squared_error, 0, {}};
  EXPECT_EQ(wrapped(mlp, {Mode::block, 1, 0}, true, false), "R:03/0 0:1/12 1:2/34");
}

TEST(Plan, TakesItsDtypesAndTheUnitsOfItsModules) {
  config::RunConfig c;
  c.model.layers = 2;
  c.mesh = {.ranks = 2, .shard = 2, .replicate = 1};
  const Plan plain = make_plan(c);
  EXPECT_EQ(plain.unit_of_module, (std::vector{0, 1, 2, 0}));
  for (const DType dtype : {plain.param_dtype, plain.gradient_dtype, plain.reduce_dtype, plain.state_dtype}) {
    EXPECT_EQ(dtype, DType::f32);
  }
  const std::vector<std::pair<DType config::Fsdp::*, DType Plan::*>> taken{
      {&config::Fsdp::param_dtype, &Plan::param_dtype},
      {&config::Fsdp::param_dtype, &Plan::gradient_dtype},
      {&config::Fsdp::reduce_dtype, &Plan::reduce_dtype},
      {&config::Fsdp::state_dtype, &Plan::state_dtype}};
  for (const auto& [asked, has] : taken) {
    config::RunConfig low = c;
    low.fsdp.*asked = DType::bf16;
    EXPECT_EQ(make_plan(low).*has, DType::bf16);
  }
}

TEST(Plan, CopiesOneShardWherePerParamIsAskedToShard) {
  config::RunConfig c;
  for (const int shard : {1, 2}) {
    for (const auto layout : {config::Layout::flat, config::Layout::per_param}) {
      for (const auto strategy : {config::Strategy::no_shard, config::Strategy::full_shard}) {
        c.mesh = {.ranks = shard, .shard = shard, .replicate = 1};
        c.fsdp.layout = layout;
        c.fsdp.strategy = strategy;
        const bool copies =
            shard == 1 && layout == config::Layout::per_param && strategy == config::Strategy::full_shard;
        const Plan plan = make_plan(c);
        EXPECT_EQ(plan.copies_alone, copies);
        EXPECT_EQ(plan.units[1].layout.copied, copies);
      }
    }
  }
}

TEST(Plan, AGroupHasTheShardsOfSeveralRanks) {
  config::RunConfig c;
  c.mesh = {.ranks = 8, .shard = 8, .replicate = 1};
  c.fsdp.layout = config::Layout::per_param;
  c.fsdp.reshard_after_forward = {config::ReshardAfterForward::Mode::group, 2};
  const Unit unit = make_plan(c).units[1];
  const ShardLayout& group = unit.group_layout.front();
  EXPECT_EQ(group.shards, 2);
  EXPECT_EQ(group.shard_numel, 4 * unit.layout.shard_numel);
  for (std::size_t p = 0; p < group.sharded.size(); ++p) {
    EXPECT_EQ(group.sharded[p].chunk_rows, 4 * unit.layout.sharded[p].chunk_rows);
    EXPECT_EQ(group.sharded[p].shard_offset, 4 * unit.layout.sharded[p].shard_offset);
    EXPECT_EQ(group.sharded[p].unsharded_offset, unit.layout.sharded[p].unsharded_offset);
  }
}

/// Four experts of 352 rows: two ranks share them, or eight do, of which a row goes to each of four.
TEST(Plan, ExpertsAreSplitAlongTheirNumberUnlessThereAreMoreRanks) {
  using config::ExpertUnit;
  config::RunConfig c;
  c.model.layers = 1;
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.fsdp.layout = config::Layout::per_param;
  for (const auto& [shard, rows, shards] : {std::tuple{2, 2, 1}, {4, 2, 2}, {8, 352, 4}}) {
    c.mesh = {.ranks = shard, .shard = shard, .replicate = 1};
    c.mesh.expert = 2;
    const Plan plan = make_plan(c);
    const ShardLayout& experts = plan.units[plan.units[1].experts].layout;
    EXPECT_EQ(experts.sharded[0].rows, rows);
    EXPECT_EQ(experts.shards, shards);
    EXPECT_EQ(experts.copied, shards == 1);
    EXPECT_EQ(plan.units.back().group, Group::expert_shard);
    EXPECT_EQ(plan.with_modules, 2);
  }
  for (const auto& [unit, orders, nests, early] : {std::tuple{ExpertUnit::group, false, false, false},
                                                   {ExpertUnit::module, false, true, false},
                                                   {ExpertUnit::ordered_module, true, true, false},
                                                   {ExpertUnit::bucket, false, false, true}}) {
    c.fsdp.expert_unit = unit;
    for (const int ranks : {1, 2}) {
      c.mesh.expert = ranks;
      const Plan plan = make_plan(c);
      EXPECT_EQ(plan.orders_experts, orders && ranks == 2);
      EXPECT_EQ(plan.nests_experts, nests && ranks == 2);
      EXPECT_EQ(plan.reduces_experts_early, early && ranks == 2);
      EXPECT_EQ(plan.units.size(), ranks == 2 ? 3U : 2U);
    }
  }
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
