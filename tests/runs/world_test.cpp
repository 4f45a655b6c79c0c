#include "runs/world.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/trials.h"

namespace fsdpbench::app {
namespace {

World made_up_world() { return fsdpbench::testing::made_up_trial({1}).world; }

TEST(World, WhatAnAxisOfASweepChangesIsNoOtherMachine) {
  World other = made_up_world();
  other.ranks = 4;
  other.places.resize(4, other.places.front());
  other.places.front().device = {{"timer", "emulated"}};
  other.backend = "cuda";
  other.emulated_link = !other.emulated_link;
  other.emulated_compute = !other.emulated_compute;
  other.date = "another day";
  other.command_line = {"fsdpbench"};
  other.memory_bytes += 4096;
  EXPECT_TRUE(same_program_and_machine(made_up_world(), other));
}

TEST(World, AnotherProgramOrMachineIsTold) {
  const World world = made_up_world();
  const auto differs = [&](const auto& change) {
    World other = world;
    change(other);
    return !same_program_and_machine(world, other);
  };
  EXPECT_TRUE(differs([](World& w) { w.program.git_revision = "def"; }));
  EXPECT_TRUE(differs([](World& w) { w.program.build_type = "Debug"; }));
  EXPECT_TRUE(differs([](World& w) { w.program.sanitize = "thread"; }));
  EXPECT_TRUE(differs([](World& w) { w.libraries = {{"fmt", "10.0.0"}}; }));
  EXPECT_TRUE(differs([](World& w) { w.cpu = "another processor"; }));
  EXPECT_TRUE(differs([](World& w) { w.kernel = "another kernel"; }));
  EXPECT_TRUE(differs([](World& w) { w.places.front().host = "there"; }));
}

TEST(World, GpusCountWhereBothHaveThem) {
  World a = made_up_world(), b = made_up_world();
  a.places.front().device = {{"GPU", "one"}};
  EXPECT_TRUE(same_program_and_machine(a, b));
  b.places.front().device = {{"GPU", "two"}};
  EXPECT_FALSE(same_program_and_machine(a, b));
}

TEST(World, ReadingGivesWhatWasWritten) {
  World world = made_up_world();
  world.transport = "TCP sockets";
  world.program.sanitize = "address";
  const nlohmann::json written = to_json(world);
  EXPECT_EQ(to_json(fields<World>().read(JsonPart(written))), written);
}

TEST(World, OfThisProcess) {
  config::RunConfig config;
  config.emulate.link_gb_per_s = 1;
  config.mesh.ranks = 4;
  const World world = current_world(config, nullptr, {"fsdpbench", "run"});
  EXPECT_EQ(world.ranks, 4);
  EXPECT_TRUE(world.emulated_link);
  EXPECT_FALSE(world.emulated_compute);
  EXPECT_GT(world.threads, 0);
  EXPECT_EQ(world.program, build_info());
  EXPECT_TRUE(same_program_and_machine(world, current_world({}, nullptr, {})));
}

}  // namespace
}  // namespace fsdpbench::app
