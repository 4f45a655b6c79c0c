#include "accept/gate/gated_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runs/result_fields.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;
using ::testing::SizeIs;

World print_world(const std::string& revision = "abc") {
  World world = fsdpbench::testing::made_up_trial({1}).world;
  world.program.git_revision = revision;
  return world;
}

TEST(MachinePrintTest, HostsAndRevisionsAreNoOtherMachine) {
  World a = print_world("abc"), b = print_world("def");
  b.places.front().host = b.places.back().host = "another";
  b.memory_bytes += 4096;
  const json left = to_json(a), right = to_json(b);
  const auto all = differences(MachinePrint::of_world(JsonPart(left)), MachinePrint::of_world(JsonPart(right)));
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all.front().name, "git revision");
  EXPECT_EQ(all.front().part, MachinePrint::Part::program);
}

TEST(MachinePrintTest, DriversAreSoftwareAndGpusAreHardware) {
  World a = print_world(), b = print_world();
  a.places.front().device = {{"GPU", "H100, PCI 0000:01"}, {"CUDA", "driver 12.8"}, {"nccl", "2.27.3"}};
  b.places.front().device = {{"GPU", "H200, PCI 0000:02"}, {"CUDA", "driver 13.0"}, {"nccl", "2.27.3"}};
  const json left = to_json(a), right = to_json(b);
  const auto all = differences(MachinePrint::of_world(JsonPart(left)), MachinePrint::of_world(JsonPart(right)));
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].part, MachinePrint::Part::hardware);
  EXPECT_EQ(all[0].now, "1 x H200");
  EXPECT_EQ(all[1].name, "CUDA");
  EXPECT_EQ(all[1].part, MachinePrint::Part::software);
}

/// Facts of a machine of this world, by part.
json print_of(const World& world) {
  const json j = to_json(world);
  return MachinePrint::of_world(JsonPart(j)).to_json();
}

json facts(const std::vector<std::pair<std::string, std::string>>& pairs) {
  json all = json::array();
  for (const auto& [name, value] : pairs) all.push_back({{"name", name}, {"value", value}});
  return all;
}

TEST(MachinePrintTest, HasEachFactWithItsMeaning) {
  World w = print_world();
  w.ranks = 3;
  w.cpu = "EPYC";
  w.threads = 64;
  w.memory_bytes = (std::int64_t{7} << 29) + 4096;  // 3.5 GiB and a page
  w.kernel = "6.1";
  w.realtime = "fifo";
  w.transport = "shared memory";
  w.emulated_link = w.emulated_compute = true;
  w.program = {"1.2", "abc", true, "Debug", "address", "GNU 12"};
  w.places = {{"a",
               {{"GPU", "H100, PCI 1"},
                {"CUDA", "12"},
                {"nccl", "2.27"},
                {"nccl net", "IB"},
                {"nccl launches", "7"},
                {"nccl windows", "2"},
                {"timer", "x"}}},
              {"a", {{"GPU", "H100, PCI 2"}, {"CUDA", "13"}}},
              {"b", {{"GPU", "A100"}}}};
  EXPECT_EQ(print_of(w)["hardware"], facts({{"backend", "cpu"},
                                            {"ranks", "3"},
                                            {"processor", "EPYC"},
                                            {"hardware threads", "64"},
                                            {"memory", "4 GiB"},
                                            {"GPUs", "1 x A100, 2 x H100"},
                                            {"nodes", "2"},
                                            {"ranks are", "processes, shared memory"},
                                            {"links", "emulated"},
                                            {"computation", "emulated"}}));
  EXPECT_EQ(print_of(w)["software"], facts({{"kernel", "6.1"},
                                            {"scheduling", "fifo"},
                                            {"fmt", "9.1.0"},
                                            {"CUDA", "12"},
                                            {"nccl", "2.27"},
                                            {"nccl net", "IB"},
                                            {"compiler", "GNU 12"},
                                            {"build", "Debug"},
                                            {"sanitizers", "address"}}));
  EXPECT_EQ(print_of(w)["program"], facts({{"fsdpbench", "1.2"}, {"git revision", "abc with changes"}}));
  w.memory_bytes = (std::int64_t{7} << 29) - 4096;
  w.emulated_link = w.emulated_compute = w.program.git_dirty = false;
  w.transport.clear();
  w.places.clear();
  w.program.sanitize.clear();
  EXPECT_EQ(print_of(w)["hardware"], facts({{"backend", "cpu"},
                                            {"ranks", "3"},
                                            {"processor", "EPYC"},
                                            {"hardware threads", "64"},
                                            {"memory", "3 GiB"},
                                            {"ranks are", "threads of one process"}}));
  EXPECT_EQ(print_of(w)["program"], facts({{"fsdpbench", "1.2"}, {"git revision", "abc"}}));
  w.backend = "virtual";
  EXPECT_EQ(print_of(w)["hardware"], facts({{"backend", "virtual"}, {"ranks", "3"}}));
  EXPECT_EQ(print_of(w)["software"], facts({{"compiler", "GNU 12"}, {"build", "Debug"}}));
}

TEST(MachinePrintTest, IsNamedByWhatComputes) {
  World w = print_world();
  const auto summary = [&] {
    const json j = to_json(w);
    return MachinePrint::of_world(JsonPart(j)).summary();
  };
  EXPECT_EQ(summary(), "a processor, 2 ranks");
  w.places.front().device = {{"GPU", "H100"}};
  EXPECT_EQ(summary(), "1 x H100, 2 ranks");
  w.places.clear();
  w.cpu.clear();
  EXPECT_EQ(summary(), "unknown machine, 2 ranks");
  w.backend = "virtual";
  EXPECT_EQ(summary(), "computed clock, 2 ranks");
}

TEST(MachinePrintTest, FactsOfOneSideAreDifferencesHardwareFirst) {
  World a = print_world(), b = print_world("def");
  a.realtime = "fifo";
  b.emulated_link = true;
  const json left = to_json(a), right = to_json(b);
  const auto all = differences(MachinePrint::of_world(JsonPart(left)), MachinePrint::of_world(JsonPart(right)));
  ASSERT_THAT(all, SizeIs(3));
  const auto text = [](const MachineDifference& d) {
    return d.name + ":" + d.before + "/" + d.now + " " + std::string(to_string(d.part));
  };
  EXPECT_EQ(text(all[0]), "links:/emulated hardware");
  EXPECT_EQ(text(all[1]), "scheduling:fifo/ software");
  EXPECT_EQ(text(all[2]), "git revision:abc/def program");
}

}  // namespace
}  // namespace fsdpbench::app
