#include "tune/structures.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "support/emulated_machine.h"

// Structures as data against visiting each of them.

namespace fsdpbench::tune {
namespace {

using config::RunConfig;
using ::fsdpbench::testing::EmulatedMachine;
using ::fsdpbench::testing::tunable_config;
using ::fsdpbench::testing::valid;

struct Question {
  std::string name;
  RunConfig config;
  SpaceOptions options = {};
};

RunConfig mixture() {
  RunConfig c = tunable_config();
  c.mesh.ranks = 8;
  c.model.layers = 2;
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.model.shared_experts = 1;
  c.train.batch_per_rank = 2;
  c.fsdp.layout = config::Layout::per_param;
  return c;
}

/// Small enough to visit every structure.
std::vector<Question> questions() {
  const std::vector<std::string> no_wrap{"fsdp.wrap", "fsdp.head_unit"};
  std::vector<Question> all;
  all.push_back({"dense", tunable_config(), {.any_engine = true}});
  all.push_back({"mixture", mixture(), {.fixed = no_wrap, .computed = true}});
  all.push_back({"mixture in other words", mixture(), {.fixed = no_wrap, .computed = true}});
  all.back().config.fsdp.strategy = config::Strategy::hybrid_shard_grad_op;
  all.back().config.mesh.shard = 4;
  all.back().config.mesh.expert = 2;
  all.push_back({"split sequences", tunable_config(), {.fixed = no_wrap, .computed = true}});
  all.back().config.mesh.context = 2;
  all.push_back({"blocks recomputed in part", tunable_config(), {.fixed = no_wrap, .computed = true}});
  all.back().config.fsdp.activation_checkpointing = true;
  all.back().config.fsdp.checkpoint_keeps = config::CheckpointKeeps::products;
  all.push_back({"accumulation", tunable_config(), {.fixed = no_wrap}});
  all.back().config.train.accumulate = 4;
  all.push_back({"FSDP1 that keeps what is not reduced", tunable_config(), {.fixed = no_wrap}});
  all.back().config.train.accumulate = 2;
  all.back().config.fsdp.keep_unreduced = true;
  all.back().config.fsdp.strategy = config::Strategy::shard_grad_op;
  all.push_back({"buckets", tunable_config(), {.fixed = no_wrap}});
  all.back().config.train.accumulate = 2;
  all.back().config.fsdp.reduce_bucket = 1 << 16;
  all.push_back({"checkpoints around hooks", tunable_config(), {}});
  all.back().config.fsdp.layout = config::Layout::per_param;
  all.back().config.fsdp.checkpoint_reentrant = true;
  all.back().config.fsdp.wait_each_backward = false;
  all.back().config.train.batch_per_rank = 2;
  all.push_back({"offload", tunable_config(), {.fixed = no_wrap}});
  all.back().config.emulate.pcie_gb_per_s = 10;
  return all;
}

TEST(Structures, AreThoseThatAVisitOfEachFindsAndWhatLeadsHasTheScheduleOfWhatItLeads) {
  const EmulatedMachine machine;
  for (const Question& question : questions()) {
    const Space space(valid(question.config), question.options);
    const Structures structures(space);
    const auto print = [&](const Point& point) {
      return schedule::fingerprint(machine.training(*space.config_at(point)));
    };
    double validated = 0, contradictory = 0;
    std::map<Point, double> led;
    std::map<Point, std::uint64_t> prints;
    std::size_t visited = 0;
    space.visit(space.origin(), Part::structure, [&](const Point& point) {
      const bool is_valid = space.config_at(point).has_value();
      const auto leader = structures.leader_of(point);
      EXPECT_EQ(leader.has_value(), is_valid) << question.name;
      validated += is_valid;
      if (!is_valid) contradictory += space.orders_of(point);
      const bool is_asked = ++visited % 14 == 0;  // for its schedule: enough of each question
      if (!leader) return true;
      EXPECT_LE(*leader, point) << question.name;  // the first in order
      ++led[*leader];
      if (!is_asked || *leader == point) return true;
      const auto [known, is_new] = prints.emplace(*leader, 0);
      if (is_new) known->second = print(*leader);
      EXPECT_EQ(print(point), known->second) << question.name << " " << ::testing::PrintToString(point);
      return true;
    });
    EXPECT_EQ(structures.valid(), validated) << question.name;
    EXPECT_EQ(structures.contradictory(), contradictory) << question.name;
    ASSERT_EQ(structures.size(), led.size()) << question.name;
    EXPECT_LT(static_cast<double>(structures.size()), validated) << question.name;
    std::map<Point, double> listed;
    for (std::size_t i = 0; i < structures.size(); ++i) listed[structures.at(i)] = structures.led_by(i);
    EXPECT_EQ(listed, led) << question.name;
  }
}

TEST(Structures, OfManyPoliciesFewAreAskedOf) {
  RunConfig config = mixture();
  config.mesh.ranks = 64;
  config.model.layers = 48;
  config.model.experts = 128;
  config.model.active_experts = 8;
  const Space space(valid(config), {.computed = true});
  ASSERT_GT(space.size(), 1e9);
  const Structures structures(space);
  EXPECT_LT(static_cast<double>(structures.checked()), 3e-5 * space.size());
  // A few of the rest are as they were counted.
  std::mt19937 random(1);
  double found = 0;
  constexpr int kDraws = 3000;
  for (int draw = 0; draw < kDraws; ++draw) {
    Point point = space.origin();
    for (std::size_t a = 0; a < point.size(); ++a) {
      if (space.axes()[a].part == Part::structure) {
        point[a] = static_cast<std::uint8_t>(random() % space.axes()[a].choices.size());
      }
    }
    found += space.config_at(point).has_value();
  }
  const double share = structures.valid() / (space.size() / space.orders_of(space.origin()));
  EXPECT_NEAR(found / kDraws, share, 0.03);
}

}  // namespace
}  // namespace fsdpbench::tune
