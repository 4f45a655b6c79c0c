#include "config/cluster.h"

#include "config/find_file.h"
#include "config/load.h"
#include "config/support.h"

namespace fsdpbench::config {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kClusters = fs::path(FSDPBENCH_SOURCE_DIR) / "profiles/clusters";

/// A whole cluster file of one node; `replace` changes the line of that key, `add` is added at the end.
std::string cluster_text(const std::string& key = "", const std::string& line = "", const std::string& add = "") {
  const std::vector<std::string> lines{"title = 'small'",
                                       "[nodes]",
                                       "count = 1",
                                       "gpus = 4",
                                       "[gpu]",
                                       "name = 'G'",
                                       "sms = 8",
                                       "memory_gib = 16",
                                       "fp32_tflops = 10",
                                       "bf16_tflops = 20",
                                       "gemm_fraction = 0.5",
                                       "memory_gb_per_s = 100",
                                       "memory_copy_gb_per_s = 80",
                                       "[intra]",
                                       "kind = 'nvlink'",
                                       "peak_gb_per_s = 50",
                                       "nccl_gb_per_s = 45",
                                       "all_gather_gb_per_s = 40",
                                       "reduce_scatter_gb_per_s = 39",
                                       "all_reduce_gb_per_s = 38",
                                       "base_latency_us = 4",
                                       "hop_latency_us = 3",
                                       "ramp_mb = 0",
                                       "collective_sms = 2",
                                       "[host]",
                                       "kernel_issue_us = 3",
                                       "framework_factor = 1"};
  std::string text;
  for (const std::string& l : lines) text += (!key.empty() && l.starts_with(key + " =") ? line : l) + "\n";
  return text + add;
}

class ClusterFile : public testing::Test {
 protected:
  std::string error(const std::string& text) const {
    return config_error([&] { load_cluster(folder_.write("c.toml", text)); });
  }
  TemporaryFolder folder_;
};

TEST_F(ClusterFile, SmallestHasNoNetworkAndNoReducingSwitch) {
  const Cluster cluster = load_cluster(folder_.write("small.toml", cluster_text()));
  EXPECT_EQ(cluster.name, "small");
  EXPECT_EQ(cluster.inter.kind, InterKind::none);
  EXPECT_EQ(cluster.intra.nvls_gb_per_s, 0);
  EXPECT_EQ(cluster.intra.kind, IntraKind::nvlink);
  EXPECT_EQ(cluster.gpu.peak.bf16, 20);
  EXPECT_EQ(cluster.gpu.peak.fp8, 0);
  EXPECT_EQ(cluster.most_ranks(), 4);
}

TEST_F(ClusterFile, MistakesAreNamedWithPlaceValueAndWhatIsValid) {
  EXPECT_THAT(error(cluster_text("sms", "smx = 8")),
              AllOf(HasSubstr("c.toml:7: unknown key 'gpu.smx'"), HasSubstr("nearest valid key is 'gpu.sms'")));
  EXPECT_THAT(error(cluster_text("sms", "sms = 0")),
              HasSubstr("c.toml:7: gpu.sms = 0 is not valid; expected an integer from 1 to 4096."));
  EXPECT_THAT(error(cluster_text("sms", "sms = 2.5")), HasSubstr("gpu.sms = 2.5 is not valid; expected an integer"));
  EXPECT_THAT(error(cluster_text("kind", "kind = 'nvlik'")),
              HasSubstr("intra.kind = \"nvlik\" is not valid; expected \"nvswitch\", \"nvlink\", \"xgmi\""));
  EXPECT_THAT(error(cluster_text("gemm_fraction", "gemm_fraction = 80")),
              HasSubstr("gpu.gemm_fraction = 80 is not valid; expected a number from 0.01 to 1."));
  EXPECT_THAT(error(cluster_text("bf16_tflops", "bf16_tflops = -1")),
              HasSubstr("expected a number from 1e-06 to 1000000."));
  EXPECT_THAT(error(cluster_text("hop_latency_us", "hop_latency_us = 1e300")),
              HasSubstr("intra.hop_latency_us = 1e+300 is not valid; expected a number from 0 to 1000000000."));
  EXPECT_THAT(error(cluster_text("title", "title = ''")), HasSubstr("c.toml:1: title = \"\" is not valid"));
  EXPECT_THAT(error(cluster_text("title", "title = ['a']")), HasSubstr("c.toml:1: title is not valid; expected"));
  EXPECT_THAT(error(cluster_text("sms", "")), HasSubstr("c.toml: there is no gpu.sms; expected an integer from 1"));
  EXPECT_THAT(error("title = "), HasSubstr("c.toml:1:"));
}

TEST_F(ClusterFile, AchievedRatesAreWithinPeaks) {
  EXPECT_THAT(error(cluster_text("all_gather_gb_per_s", "all_gather_gb_per_s = 51")),
              HasSubstr("c.toml:18: intra.all_gather_gb_per_s = 51 is not valid; expected at most intra.peak_gb_per_s "
                        "= 50."));
  EXPECT_THAT(error(cluster_text("memory_copy_gb_per_s", "memory_copy_gb_per_s = 101")),
              HasSubstr("expected at most gpu.memory_gb_per_s = 100."));
  const std::string slow =
      "[inter]\nkind = 'roce'\nnics_per_node = 1\nnic_gb_per_s = 1\nnic_achieved_gb_per_s = 2\n"
      "hop_latency_us = 1\n";
  EXPECT_THAT(error(cluster_text("", "", slow)), HasSubstr("expected at most inter.nic_gb_per_s = 1."));
  // Bytes that a switch reduces were never on the wire.
  EXPECT_NO_THROW(load_cluster(
      folder_.write("n.toml", cluster_text("all_reduce_gb_per_s", "all_reduce_gb_per_s = 38\nnvls_gb_per_s = 60"))));
}

TEST_F(ClusterFile, ASiteReplacesWhatItNames) {
  const std::string site = "[site.hall]\ntitle = 'a slow hall'\n[site.hall.intra]\nbase_latency_us = 9\n";
  const std::string path = folder_.write("c.toml", cluster_text("", "", site));
  EXPECT_EQ(load_cluster(path).intra.base_latency_us, 4);
  EXPECT_EQ(load_cluster(path).site, "");
  const Cluster hall = load_cluster(path + ":hall");
  EXPECT_EQ(hall.intra.base_latency_us, 9);
  EXPECT_EQ(hall.intra.hop_latency_us, 3) << "what the file says of all";
  EXPECT_EQ(hall.title, "a slow hall");
  EXPECT_EQ(hall.name, "c") << "published errors are those of the file";
  EXPECT_EQ(hall.site, "hall");
}

TEST_F(ClusterFile, AMeasuredRateStandsForTheNetwork) {
  const Cluster cluster = load_cluster("aws-p5:65GB/s");
  EXPECT_DOUBLE_EQ(cluster.inter.nics_per_node * cluster.inter.nic_achieved_gb_per_s, 65);
  EXPECT_TRUE(cluster.inter.asked);
  EXPECT_FALSE(load_cluster("aws-p5").inter.asked);
  EXPECT_TRUE(load_cluster("aws-p5:hopper-prod:65GB/s").inter.curve_nodes.empty()) << "what was measured goes first";
  for (const char* wrong : {"aws-p5:GB/s", "aws-p5:0GB/s", "aws-p5:-3GB/s", "aws-p5:900GB/s", "aws-p5:x5GB/s"}) {
    EXPECT_THAT(config_error([&] { load_cluster(wrong); }), HasSubstr("is no bus bandwidth between its nodes"))
        << wrong;
  }
}

TEST_F(ClusterFile, ACurveByNodesIsStraightBetweenItsPoints) {
  const InterFabric inter = load_cluster("aws-p5:hopper-prod").inter;
  EXPECT_NEAR(at_nodes(inter, inter.curve_gather, 2), inter.curve_gather.front(), 1e-9);
  EXPECT_EQ(at_nodes(inter, inter.curve_gather, 500), inter.curve_gather.back());
  EXPECT_NEAR(at_nodes(inter, inter.curve_gather, 8), inter.curve_gather[2], 1e-9);
  EXPECT_GT(at_nodes(inter, inter.curve_gather, 12), inter.curve_gather[3]);
  EXPECT_LT(at_nodes(inter, inter.curve_gather, 12), inter.curve_gather[2]);
  EXPECT_EQ(inter.steps_low.size(), inter.curve_nodes.size());
  EXPECT_LT(at_nodes(inter, inter.steps_low, 64), at_nodes(inter, inter.steps_low, 32));
  EXPECT_EQ(inter.steps_high.size(), inter.curve_nodes.size());
  const std::string inter_table =
      "[inter]\nkind = 'roce'\nnics_per_node = 1\nnic_gb_per_s = 4\nnic_achieved_gb_per_s = 2\nhop_latency_us = 1\n";
  EXPECT_THAT(error(cluster_text("", "", inter_table + "curve_nodes = [2, 4]\ncurve_low = [1]\n")),
              HasSubstr("every other inter.curve has a number for each of them"));
}

TEST_F(ClusterFile, MistakesInSitesAreNamedWhicheverIsAskedFor) {
  const auto with = [](const std::string& add) { return cluster_text("", "", add); };
  const std::string hall = "[site.hall.intra]\n";
  EXPECT_THAT(error(with(hall + "hop = 1\n")), HasSubstr("c.toml:29: unknown key 'intra.hop'"));
  EXPECT_THAT(error("site = 1\n" + cluster_text()), HasSubstr("c.toml:1: site is not valid; expected tables"));
  EXPECT_THAT(error(with("[site]\nhall = 1\n")), HasSubstr("site.hall is not valid; expected a table"));
  const std::string path = folder_.write("c.toml", with(hall + "all_gather_gb_per_s = 51\n"));
  EXPECT_NO_THROW(load_cluster(path));
  EXPECT_THAT(config_error([&] { load_cluster(path + ":hall"); }),
              HasSubstr("c.toml:29: intra.all_gather_gb_per_s = 51 is not valid; expected at most"));
  EXPECT_THAT(config_error([&] { load_cluster(path + ":yard"); }),
              HasSubstr("there is no site 'yard'; expected one of hall."));
  EXPECT_THAT(config_error([&] { load_cluster(folder_.write("d.toml", cluster_text()) + ":hall"); }),
              HasSubstr("there is no site 'hall': the file has none."));
}

TEST_F(ClusterFile, SeveralNodesNeedANetwork) {
  EXPECT_THAT(error(cluster_text("count", "count = 2")),
              HasSubstr("there is no inter.kind; expected \"none\", \"infiniband\", \"roce\", \"efa\", \"ethernet\", "
                        "since there are several nodes."));
}

TEST_F(ClusterFile, OtherKindsOfFilesAreSaidToBe) {
  const std::string cluster = folder_.write("c.toml", cluster_text());
  EXPECT_THAT(config_error([&] { load_profile(cluster); }),
              HasSubstr("is a cluster file, and a run profile is expected; it says what a simulation runs on."));
  EXPECT_THAT(error("[mesh]\nranks = 2\n"), HasSubstr("is a run profile, and a cluster file is expected"));
}

TEST(Clusters, UnknownNamesAreAnsweredWithTheList) {
  EXPECT_THAT(config_error([] { load_cluster("dgx-h10"); }),
              AllOf(HasSubstr("dgx-h10: there is no such file, and no cluster of that name; the nearest is 'dgx-h100' "
                              "of aws-p5, "),
                    HasSubstr(", cpu-2core, dgx-a100, ")));
}

/// Every file of the project can be read, by its name, and its figures keep the order that physics gives them.
TEST(Clusters, AllOfTheProjectAreWhole) {
  int count = 0;
  for (const auto& file : fs::directory_iterator(kClusters)) {
    const std::string name = file.path().stem().string();
    SCOPED_TRACE(name);
    const Cluster cluster = load_cluster(name);
    EXPECT_EQ(cluster.name, name);
    EXPECT_LE(cluster.gpu.peak.fp32, cluster.gpu.peak.bf16);
    EXPECT_TRUE(cluster.gpu.peak.fp8 == 0 || cluster.gpu.fp8_gemm_fraction > 0);
    EXPECT_LT(cluster.intra.collective_sms, cluster.gpu.sms + 1);
    const double node = cluster.inter.nics_per_node * cluster.inter.nic_gb_per_s / cluster.gpus_per_node;
    EXPECT_LT(node, cluster.intra.peak_gb_per_s) << "a GPU's part of the NICs is slower than its links in node";
    ++count;
  }
  EXPECT_GE(count, 9);
}

TEST(Clusters, RanksFitOrAreRefusedInASentence) {
  const Cluster cluster = load_cluster("ethernet-a100");
  for (const std::int64_t ranks : {1, 3, 8, 16, 2048}) EXPECT_NO_THROW(check_fits(cluster, ranks)) << ranks;
  EXPECT_THAT(config_error([&] { check_fits(cluster, 4096); }),
              HasSubstr("4096 ranks do not fit cluster 'ethernet-a100': its 256 nodes of 8 GPUs hold 2048 at most."));
  EXPECT_THAT(config_error([&] { check_fits(cluster, 12); }), HasSubstr("so 8 or 16 ranks would do."));
}

}  // namespace
}  // namespace fsdpbench::config
