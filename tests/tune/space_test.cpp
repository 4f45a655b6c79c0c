#include "tune/space.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"
#include "config/fields.h"
#include "support/emulated_machine.h"

namespace fsdpbench::tune {
namespace {

using ::fsdpbench::testing::all_but;
using ::fsdpbench::testing::tunable_config;
using ::fsdpbench::testing::valid;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Axis& axis(const Space& space, const std::string& name) {
  for (const Axis& axis : space.axes()) {
    if (axis.name == name) return axis;
  }
  throw std::logic_error(name);
}

std::vector<std::string> texts(const Axis& axis) {
  std::vector<std::string> all;
  for (const Choice& choice : axis.choices) all.push_back(choice.text);
  return all;
}

TEST(Space, ThePointInForceIsTheConfigurationItself) {
  const Space space(valid(tunable_config()), {});
  EXPECT_EQ(space.config_at(space.origin()), space.start());
  for (const Axis& axis : space.axes()) EXPECT_TRUE(axis.choices.front().settings.empty()) << axis.name;
}

TEST(Space, WhatIsNotOfferedIsNoChoice) {
  const std::string deeper = "fsdp.forward_prefetch=explicit:2", key = "fsdp.forward_prefetch";
  EXPECT_THAT(texts(axis(Space(valid(tunable_config()), {}), key)), Contains(deeper));
  const SpaceOptions some{
      .offers = [](const config::RunConfig& config) { return config.fsdp.forward_prefetch.depth < 2; }};
  const Space space(valid(tunable_config()), some);
  EXPECT_THAT(texts(axis(space, key)), Not(Contains(deeper)));
  EXPECT_THAT(texts(axis(space, key)), Contains("fsdp.forward_prefetch=explicit:1"));
}

TEST(Space, EachChoiceSaysWhatItSets) {
  const Space space(valid(tunable_config()), {});
  for (std::size_t a = 0; a < space.axes().size(); ++a) {
    for (std::size_t c = 0; c < space.axes()[a].choices.size(); ++c) {
      Point point = space.origin();
      point[a] = static_cast<std::uint8_t>(c);
      const auto config = space.config_at(point);
      if (!config) continue;
      for (const std::string& key : space.axes()[a].keys) {
        const config::Field* field = config::find_field(key);
        std::string value = config::to_toml(field->write(*config)), was = config::to_toml(field->write(space.start()));
        std::erase(value, '"');
        std::erase(was, '"');
        const Choice& choice = space.axes()[a].choices[c];
        if (c > 0 && value == was) {
          EXPECT_THAT(choice.text, Not(HasSubstr(key + "=")));
          EXPECT_THAT(choice.was, Not(HasSubstr(key + "=")));
          continue;
        }
        EXPECT_THAT(choice.text, HasSubstr(key + "=" + value));
        EXPECT_THAT(c > 0 ? choice.was : choice.text, HasSubstr(key + "=" + (c > 0 ? was : value)));
      }
    }
  }
}

TEST(Space, NoTwoChoicesOfAnAxisAreTheSame) {
  const Space space(valid(tunable_config()), {});
  for (const Axis& axis : space.axes()) {
    const std::vector<std::string> all = texts(axis);
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size()) << axis.name;
  }
}

TEST(Space, EverySplitOfTheRanksIsAMesh) {
  config::RunConfig config = tunable_config();
  config.mesh.ranks = 12;
  const Space space(valid(config), {});
  const std::vector<std::string> meshes = texts(axis(space, "fsdp.strategy"));
  for (const char* mesh : {"mesh.shard=2 mesh.replicate=6", "mesh.shard=3 mesh.replicate=4",
                           "mesh.shard=4 mesh.replicate=3", "mesh.shard=6 mesh.replicate=2"}) {
    EXPECT_THAT(meshes, Contains(std::string("fsdp.strategy=hybrid_shard ") + mesh));
    EXPECT_THAT(meshes, Contains(std::string("fsdp.strategy=hybrid_shard_grad_op ") + mesh));
  }
  EXPECT_THAT(meshes, Contains("fsdp.strategy=no_shard mesh.shard=1 mesh.replicate=12"));
}

TEST(Space, ExpertsAreSplitOverRanksOnlyWhereTimesAreComputed) {
  config::RunConfig config = tunable_config();
  config.mesh.ranks = 8;
  config.fsdp.layout = config::Layout::per_param;
  config.model.experts = 12;
  config.model.active_experts = 2;
  EXPECT_EQ(texts(axis(Space(valid(config), {}), "mesh.expert")).size(), 1U);
  const Space space(valid(config), {.computed = true});
  EXPECT_THAT(texts(axis(space, "mesh.expert")), ElementsAre("mesh.expert=1", "mesh.expert=2", "mesh.expert=4"));
}

TEST(Space, BlocksAreRecomputedInPartOnlyWhereTimesAreComputed) {
  const std::string name = "fsdp.activation_checkpointing";
  config::RunConfig config = tunable_config();
  EXPECT_THAT(texts(axis(Space(valid(config), {}), name)), Contains(name + "=true"));
  const Space space(valid(config), {.computed = true});
  EXPECT_THAT(
      texts(axis(space, name)),
      ElementsAre(name + "=false fsdp.checkpoint_every=1 fsdp.checkpoint_keeps=nothing", name + "=true",
                  name + "=true fsdp.checkpoint_every=2", name + "=true fsdp.checkpoint_every=3",
                  name + "=true fsdp.checkpoint_every=4", name + "=true fsdp.checkpoint_keeps=every_second_product",
                  name + "=true fsdp.checkpoint_keeps=products",
                  name + "=true fsdp.checkpoint_keeps=all_but_feed_forward"));
}

TEST(Space, RanksThatSplitLayersAreNoShards) {
  config::RunConfig config = tunable_config();
  config.mesh.ranks = 16;
  config.mesh.tensor = 2;
  const Space space(valid(config), {});
  const std::vector<std::string> meshes = texts(axis(space, "fsdp.strategy"));
  EXPECT_THAT(meshes, Contains("fsdp.strategy=hybrid_shard mesh.shard=4 mesh.replicate=2"));
  EXPECT_THAT(meshes, Contains("fsdp.strategy=no_shard mesh.shard=1 mesh.replicate=8"));
}

TEST(Space, MicroBatchesKeepTheGlobalBatch) {
  config::RunConfig config = tunable_config();
  config.train.batch_per_rank = 3;
  config.train.accumulate = 4;
  const Space space(valid(config), {.fixed = all_but({"train.batch_per_rank", "train.accumulate"})});
  int points = 0;
  space.visit(space.origin(), Part::structure, [&](const Point& point) {
    const auto at = space.config_at(point);
    EXPECT_TRUE(at && at->train.batch_per_rank * at->train.accumulate == 12);
    return ++points > 0;
  });
  EXPECT_EQ(points, 6);  // divisors of 12
}

TEST(Space, AFreeBatchIsFreeOfTheGlobalOne) {
  config::RunConfig config = tunable_config();
  config.train.batch_global = 4 * config.mesh.ranks;
  const Space space(valid(config), {.fixed = all_but({"train.batch_per_rank"}), .free_batch = true});
  std::set<std::int64_t> batches;
  space.visit(space.origin(), Part::structure, [&](const Point& point) {
    batches.insert(space.config_at(point)->train.batch_per_rank);
    return true;
  });
  EXPECT_EQ(batches, (std::set<std::int64_t>{1, 2, 4, 8, 16, 32, 64}));
}

TEST(Space, AFixedKeyStaysWhateverElseIsTurned) {
  config::RunConfig config = tunable_config();
  config.fsdp.layout = config::Layout::flat;
  const Space space(valid(config), {.fixed = {"fsdp.layout", "mesh.shard"}, .any_engine = true});
  space.visit(space.origin(), Part::structure, [&](const Point& point) {
    if (const auto at = space.config_at(point)) {
      EXPECT_EQ(at->fsdp.layout, config::Layout::flat);
      EXPECT_EQ(at->mesh.shard, 4);
    }
    return true;
  });
  EXPECT_THAT(texts(axis(space, "fsdp.preset")), Not(Contains("fsdp.preset=simplefsdp")));  // its layout is per_param
  EXPECT_THAT(texts(axis(space, "fsdp.preset")), Contains("fsdp.preset=fsdp1"));
}

TEST(Space, AFixedKeyThatIsNoneIsSaid) {
  try {
    Space(valid(tunable_config()), {.fixed = {"fsdp.warp"}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("fsdp.warp"));
    EXPECT_THAT(error.what(), HasSubstr("'fsdp.wrap'"));
  }
}

TEST(Space, DtypesAreLeftAloneUnlessAllowed) {
  EXPECT_EQ(axis(Space(valid(tunable_config()), {}), "fsdp.param_dtype").choices.size(), 1U);
  EXPECT_EQ(axis(Space(valid(tunable_config()), {.dtypes = {"bf16"}}), "fsdp.param_dtype").choices.size(), 2U);
  EXPECT_THROW(Space(valid(tunable_config()), {.dtypes = {"fp7"}}), ConfigError);
}

TEST(Space, TheEngineIsKeptUnlessAllowed) {
  config::RunConfig config = tunable_config();
  config.mesh.ranks = config.mesh.shard = 8;
  EXPECT_EQ(axis(Space(valid(config), {}), "fsdp.preset").choices.size(), 1U);
  const auto engines = texts(axis(Space(valid(config), {.any_engine = true}), "fsdp.preset"));
  EXPECT_THAT(engines, Contains("fsdp.preset=deepspeed-z3"));
}

/// Keys of [fsdp], [mesh] and [train] that are no axes. A key that is neither here nor an axis fails a test.
struct NotTurned {
  std::string_view why;
  std::vector<std::string_view> keys;
};
const std::vector<NotTurned>& not_turned() {
  static const std::vector<NotTurned> all{
      {"it is a rule of an engine, which its preset sets: --any-engine",
       {"fsdp.layout",
        "fsdp.keep_unreduced",
        "fsdp.wait_each_backward",
        "fsdp.gradients_after_views",
        "fsdp.learn_execution_order",
        "fsdp.gradient_scaling",
        "fsdp.max_live_parameters",
        "fsdp.max_reuse_distance",
        "fsdp.persistence_threshold",
        "fsdp.gathers_ascend",
        "fsdp.gathers_follow_compute",
        "fsdp.root_prefetches_forward",
        "fsdp.root_prefetches_backward",
        "fsdp.free_lane",
        "fsdp.reduce_bucket",
        "fsdp.reduce_by",
        "fsdp.reduce_lane",
        "fsdp.reduce_lag",
        "fsdp.reductions_in_flight",
        "fsdp.reduce_scatter_elements",
        "fsdp.gradient_copy_in",
        "fsdp.host_sync_at_group_shard",
        "fsdp.keep_group_shard"}},
      {"it changes numerics",
       {"fsdp.fp8_products", "fsdp.fp8_recipe", "fsdp.gradient_divide_factor", "fsdp.fp32_gradients",
        "fsdp.state_dtype"}},
      {"the op times of a machine are those of kernels with or without it", {"fsdp.cast_in_optimizer"}},
      {"it says what the model's own recomputation keeps", {"fsdp.recompute_share"}},
      {"it is simulated only: --cluster", {"fsdp.checkpoint_keeps"}},
      {"it is how the model calls its checkpoints", {"fsdp.checkpoint_reentrant"}},
      {"which parameters are too small to be split is the model's", {"fsdp.shard_threshold"}},
      {"it splits layers, so that each rank has another model", {"mesh.tensor", "mesh.sequence_parallel"}},
      {"it splits sequences, so that each rank has other tokens", {"mesh.context"}},
      {"it is what the router and the library of exchanges do",
       {"mesh.expert_imbalance", "mesh.expert_sync", "mesh.expert_rows"}},
      {"it is how the model wraps its experts", {"fsdp.expert_unit"}},
      {"it is what PyTorch's version does", {"fsdp.recompute_frees"}},
      {"it is the training that is tuned for",
       {"mesh.ranks", "train.steps", "train.warmup", "train.seq_len", "train.batch_global", "train.seed",
        "train.optimizer", "train.learning_rate", "train.beta1", "train.beta2", "train.epsilon", "train.weight_decay",
        "train.clip_norm", "train.params_digest"}},
  };
  return all;
}

/// Why a key of [fsdp], [mesh] or [train] is no axis of any space; empty if it is one.
std::string_view why_not_turned(std::string_view key) {
  for (const NotTurned& reason : not_turned()) {
    if (std::ranges::find(reason.keys, key) != reason.keys.end()) return reason.why;
  }
  return "";
}

TEST(Space, EachKeyIsTurnedOrSaysWhyNot) {
  const Space space(valid(tunable_config()), {});
  std::set<std::string> turned;
  for (const Axis& axis : space.axes()) turned.insert(axis.keys.begin(), axis.keys.end());
  for (const config::Field& field : config::fields()) {
    if (field.table != "fsdp" && field.table != "mesh" && field.table != "train") continue;
    const std::string key = field.name();
    EXPECT_NE(turned.contains(key), !why_not_turned(key).empty()) << key;
  }
}

TEST(Space, OfAnotherEngineOnlyWhatEveryEngineHasIsTurned) {
  const Space space(valid(tunable_config()), {.any_engine = true});
  Point point = space.origin();
  for (std::size_t a = 0; a < point.size(); ++a) point[a] = space.axes()[a].name == "fsdp.preset";
  EXPECT_TRUE(space.config_at(point));
  for (std::size_t a = 0; a < point.size(); ++a) {
    const std::string& name = space.axes()[a].name;
    if (name == "fsdp.preset" || space.axes()[a].choices.size() == 1) continue;
    Point turned = point;
    turned[a] = 1;
    EXPECT_EQ(space.holds(turned), name == "fsdp.wrap" || name == "fsdp.activation_checkpointing") << name;
  }
}

TEST(Space, VisitsAsManyPointsAsItSays) {
  const Space space(
      valid(tunable_config()),
      {.fixed = all_but({"fsdp.preset", "fsdp.wrap", "fsdp.strategy", "fsdp.forward_prefetch"}), .any_engine = true});
  double points = 0;
  std::set<Point> seen;
  space.visit(space.origin(), Part::structure, [&](const Point& structure) {
    double orders = 0;
    space.visit(structure, Part::order, [&](const Point& point) {
      seen.insert(point);
      ++orders;
      return true;
    });
    EXPECT_EQ(orders, space.orders_of(structure));
    points += orders;
    return true;
  });
  EXPECT_EQ(points, space.size());
  EXPECT_EQ(static_cast<double>(seen.size()), points);
}

}  // namespace
}  // namespace fsdpbench::tune
