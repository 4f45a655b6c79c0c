
#include "config/load.h"
#include "config/support.h"
#include "config/validate.h"
#include "config/write.h"

namespace fsdpbench::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GiveWayTest : public testing::Test {
 protected:
  /// Loaded and valid; throws what a user would see.
  RunConfig load(const std::string& profile, const std::vector<std::string>& set) {
    notes_.clear();
    RunConfig config = load_profile(folder_.write("run.toml", profile), set, &notes_);
    validate(config);
    return config;
  }
  std::string error(const std::string& profile, const std::vector<std::string>& set) {
    return config_error([&] { load(profile, set); });
  }

  TemporaryFolder folder_;
  std::vector<std::string> notes_;
  const std::string quickstart_ = "[emulate]\nlink_gb_per_s = 0.1\nlink_latency_us = 20.0\n";
};

TEST_F(GiveWayTest, TurningTheLinkOffTurnsItsLatencyOff) {
  const RunConfig config = load(quickstart_, {"emulate.link_gb_per_s=none"});
  EXPECT_EQ(config.emulate, Emulate());
  EXPECT_THAT(notes_, ElementsAre("ignoring the profile's emulate.link_latency_us = 20.0: there is no modelled link."));
}

TEST_F(GiveWayTest, WhatTheCommandLineItselfSetsContradicts) {
  EXPECT_THAT(error(quickstart_, {"emulate.link_gb_per_s=none", "emulate.link_latency_us=20"}),
              HasSubstr("emulate.link_latency_us = 20 is the latency of the modelled link, and there is none"));
  EXPECT_THAT(error("", {"device.backend=cuda", "emulate.link_gb_per_s=1"}), HasSubstr("a GPU cannot emulate"));
  EXPECT_THAT(error("[emulate]\nlink_latency_us = 20", {}), HasSubstr("there is none")) << "a profile's own mistake";
}

TEST_F(GiveWayTest, AGpuTakesEmulationAway) {
  const RunConfig config = load(quickstart_ + "compute_tflops = 1\n[inject]\nslow_rank = 1\n", {"device.backend=cuda"});
  EXPECT_EQ(config.emulate, Emulate());
  EXPECT_EQ(config.inject.slow_rank, -1);
  EXPECT_THAT(notes_, testing::SizeIs(2));
  EXPECT_THAT(notes_, Contains("ignoring the profile's emulate.link_gb_per_s = 0.1, emulate.link_latency_us = 20.0, "
                               "emulate.compute_tflops = 1.0: links, computation and PCIe of a GPU are real."));
}

TEST_F(GiveWayTest, ASlowLinkNeedsALink) {
  const RunConfig config = load(quickstart_ + "[inject]\nslow_link_rank = 1\n", {"emulate.link_gb_per_s=none"});
  EXPECT_EQ(config.inject.slow_link_rank, -1);
}

TEST_F(GiveWayTest, TheMeshFollowsRanksAndStrategy) {
  const std::string resolved = "[mesh]\nranks = 4\nshard = 4\nreplicate = 1\n";
  EXPECT_EQ(load(resolved, {"mesh.ranks=8"}).mesh, (Mesh{8, 8, 1}));
  EXPECT_THAT(notes_, ElementsAre("ignoring the profile's mesh.shard = 4: it follows from fsdp.strategy = "
                                  "\"full_shard\" and mesh.ranks = 8."));
  EXPECT_EQ(load(resolved, {"mesh.ranks=1"}).mesh, (Mesh{1, 1, 1}));
  EXPECT_EQ(load(resolved, {"fsdp.strategy=no_shard"}).mesh, (Mesh{4, 1, 4}));
  EXPECT_EQ(load(resolved, {"train.steps=1"}).mesh, (Mesh{4, 4, 1}));
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(GiveWayTest, ABatchIsGivenByRankOrInAll) {
  const std::string both = "[train]\nbatch_per_rank = 2\nbatch_global = 24\n";  // as a resolved configuration has them
  EXPECT_EQ(load(both, {}).train.batch_per_rank, 6);
  EXPECT_EQ(load(both, {"mesh.ranks=2"}).train.batch_per_rank, 12);
  const RunConfig by_rank = load(both, {"train.batch_per_rank=3"});
  EXPECT_EQ(by_rank.train.batch_per_rank, 3);
  EXPECT_EQ(by_rank.train.batch_global, 0);
  EXPECT_THAT(notes_, ElementsAre("ignoring the profile's train.batch_global = 24: train.batch_per_rank says how large "
                                  "a batch is."));
  EXPECT_EQ(load(both, {"train.batch_global=8"}).train.batch_per_rank, 2);
  EXPECT_THAT(error("", {"train.batch_global=8", "train.batch_per_rank=2"}),
              HasSubstr("both say how large a batch is; leave one out"));
}

TEST_F(GiveWayTest, AHybridMeshKeepsWhatTheCommandLineNames) {
  const std::string hybrid = "[mesh]\nranks = 8\nshard = 4\nreplicate = 2\n[fsdp]\nstrategy = 'hybrid_shard'\n";
  EXPECT_EQ(load(hybrid, {"mesh.ranks=16"}).mesh, (Mesh{16, 4, 4}));
  EXPECT_EQ(load(hybrid, {"mesh.shard=2"}).mesh, (Mesh{8, 2, 4}));
  EXPECT_EQ(load(hybrid, {"mesh.replicate=4"}).mesh, (Mesh{8, 2, 4}));
  EXPECT_EQ(load(hybrid, {"fsdp.strategy=full_shard"}).mesh, (Mesh{8, 8, 1}));
  EXPECT_THAT(error(hybrid, {"mesh.shard=2", "mesh.replicate=2"}), HasSubstr("is not mesh.ranks = 8"));
}

TEST_F(GiveWayTest, APresetOfTheCommandLineSaysWhatItDoesNotSet) {
  load("[model]\nlayers = 3\nheads = 32\n[fsdp]\nlayout = 'per_param'\n",
       {"model.preset=llama3-8b", "fsdp.preset=fsdp1"});
  EXPECT_THAT(notes_, ElementsAre("model.preset = \"llama3-8b\" leaves these alone, because the profile sets them "
                                  "explicitly: model.layers = 3.",
                                  "fsdp.preset = \"fsdp1\" leaves these alone, because the profile sets them "
                                  "explicitly: fsdp.layout = \"per_param\"."));
}

TEST_F(GiveWayTest, WhatAResultSaysAsItsPresetDoesLeavesAnotherPresetItsKeys) {
  RunConfig run = load("[fsdp]\nforward_prefetch = 'explicit:2'\n", {});
  run = load(to_toml(run), {"fsdp.preset=fsdp1"});
  EXPECT_EQ(run.fsdp.layout, load("", {"fsdp.preset=fsdp1"}).fsdp.layout);
  EXPECT_EQ(run.fsdp.forward_prefetch, load("", {"fsdp.forward_prefetch=explicit:2"}).fsdp.forward_prefetch);
}

}  // namespace
}  // namespace fsdpbench::config
