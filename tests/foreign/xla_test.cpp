// Files that JAX leaves behind: traces of jax.profiler and programs compiled by XLA. tests/peer/xla_traces.py and
// xla_programs.py record what the real ones hold.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"
#include "config/cluster.h"
#include "foreign/evidence.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "foreign/xla_module.h"
#include "foreign/xla_program.h"
#include "support/temporary_folder.h"
#include "support/xspace.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Lists = std::vector<std::vector<int>>;

const std::string kRecorded = std::string(FSDPBENCH_RECORDED_DIR) + "/xla-traces-0.10.2/";

TEST(ReplicaGroups, AreReadInEachFormThatXlaPrints) {
  const Lists strided{{0, 2, 4, 6}, {1, 3, 5, 7}}, halves{{0, 1, 2, 3}, {4, 5, 6, 7}};
  EXPECT_EQ(parse_groups("{{0,1,2,3},{4,5,6,7}}").lists, halves);
  EXPECT_EQ(parse_groups("[2,4]<=[8]").lists, halves);
  EXPECT_EQ(parse_groups("[2,4]<=[4,2]T(1,0)").lists, strided);
  EXPECT_EQ(parse_groups("mesh['axis_0'=4,'axis_1'=1,'axis_2'=2] {'axis_0'}").lists, strided);
  EXPECT_EQ(parse_groups("mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}").lists, halves);
  EXPECT_EQ(parse_groups("mesh['axis_0'=4,'axis_1'=2], device_ids=(0,4,1,5,2,6,3,7) {'axis_0'}").lists, halves);
  EXPECT_EQ(parse_groups("mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}").lists, (Lists{{0, 1, 2, 3, 4, 5, 6, 7}}));
  // Parts of axes, a form that nobody knows, and more devices than there are.
  EXPECT_EQ(parse_groups("mesh['axis_0'=8] {'axis_0':(1)2}").size, -1);
  EXPECT_EQ(parse_groups("somehow").size, -1);
  EXPECT_TRUE(parse_groups("[1048576,1048576]<=[1099511627776]").lists.empty());
}

constexpr const char* kProgram = R"(HloModule jit_train, is_scheduled=true, num_partitions=8

%async_computation (param: bf16[4096,4096]) -> bf16[512,4096] {
  %param = bf16[4096,4096]{1,0} parameter(0)
  ROOT %reduce-scatter.7 = bf16[512,4096]{1,0} reduce-scatter(%param), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%add
}

%product (a: bf16[4096,4096], b: bf16[4096,4096]) -> bf16[4096,4096] {
  %a = bf16[4096,4096]{1,0} parameter(0)
  %b = bf16[4096,4096]{1,0} parameter(1)
  ROOT %dot.1 = bf16[4096,4096]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], bf16[4096,4096], f32[512,4096])) -> (s32[], bf16[4096,4096], f32[512,4096]) {
  %state = (s32[], bf16[4096,4096]{1,0}, f32[512,4096]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %h = bf16[4096,4096]{1,0} get-tuple-element(%state), index=1
  %w = f32[512,4096]{1,0} get-tuple-element(%state), index=2
  %convert = bf16[512,4096]{1,0} fusion(%w), kind=kLoop, calls=%convert_body
  %all-gather-start.1 = (bf16[512,4096]{1,0}, bf16[4096,4096]{1,0}) all-gather-start(%convert), channel_id=1, replica_groups=mesh['axis_0'=8] {'axis_0'}, dimensions={0}, metadata={op_name="jit(train)/jvp()/while/body/dot_general"}, backend_config={"collective_backend_config":{"is_sync":false,"is_pipelined":false}}
  %all-gather-done.1 = bf16[4096,4096]{1,0} all-gather-done(%all-gather-start.1)
  %all-gather-start.2 = (bf16[512,4096]{1,0}, bf16[4096,4096]{1,0}) all-gather-start(%convert), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, backend_config={"collective_backend_config":{"is_sync":true}}
  %all-gather-done.2 = bf16[4096,4096]{1,0} all-gather-done(%all-gather-start.2)
  %gemm_fusion_dot.1 = bf16[4096,4096]{1,0} fusion(%h, %all-gather-done.1), kind=kCustom, calls=%product
  %reduce-scatter-start = ((bf16[4096,4096]{1,0}), bf16[512,4096]{1,0}) async-start(%gemm_fusion_dot.1), calls=%async_computation, metadata={op_name="jit(train)/transpose(jvp())/dot_general"}
  %gemm_fusion_dot.2 = bf16[4096,4096]{1,0} fusion(%h, %all-gather-done.2), kind=kCustom, calls=%product
  %reduce-scatter-done = bf16[512,4096]{1,0} async-done(%reduce-scatter-start)
  ROOT %next = (s32[], bf16[4096,4096]{1,0}, f32[512,4096]{1,0}) tuple(%i, %gemm_fusion_dot.2, %w)
}

%condition (state: (s32[], bf16[4096,4096], f32[512,4096])) -> pred[] {
  %state.1 = (s32[], bf16[4096,4096]{1,0}, f32[512,4096]{1,0}) parameter(0)
  ROOT %less = pred[] fusion(%state.1), kind=kLoop, calls=%compare
}

ENTRY %main (w: f32[512,4096], x: bf16[4096,4096]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(1), metadata={op_name="x"}
  %w.1 = f32[512,4096]{1,0} parameter(0), metadata={op_name="params[\'up\']"}
  %zero = s32[] constant(0)
  %tuple = (s32[], bf16[4096,4096]{1,0}, f32[512,4096]{1,0}) tuple(%zero, %x, %w.1)
  %while.1 = (s32[], bf16[4096,4096]{1,0}, f32[512,4096]{1,0}) while(%tuple), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"4"}}
  %h.1 = bf16[4096,4096]{1,0} get-tuple-element(%while.1), index=1
  %all-reduce.5 = (f32[], f32[4096,4096]{1,0}) all-reduce(%zero, %x), replica_groups={}, to_apply=%add
  %gradient = f32[4096,4096]{1,0} get-tuple-element(%all-reduce.5), index=1
  %dynamic-slice_fusion = f32[512,4096]{1,0} fusion(%gradient), kind=kLoop, calls=%slice
  ROOT %copy = bf16[4096,4096]{1,0} copy(%h.1)
}
)";

TEST(HloText, HasItsCollectivesWithBytesGroupsAndWhatLiesBetween) {
  const HloProgram program = place_collectives(parse_hlo_text(kProgram));
  EXPECT_EQ(program.devices, 8);
  ASSERT_EQ(program.collectives.size(), 4U);
  const PlacedCollective& gather = program.collectives[0];
  EXPECT_EQ(gather.name, "all-gather-start.1");
  EXPECT_EQ(gather.facts.bytes_in, 512 * 4096 * 2);
  EXPECT_EQ(gather.facts.bytes_out, 4096 * 4096 * 2);
  EXPECT_EQ(gather.ranks, 8);
  EXPECT_EQ(gather.times, 4);
  EXPECT_EQ(gather.parameter, "params['up']");
  EXPECT_EQ(gather.phase(), schedule::Phase::forward);
  EXPECT_TRUE(gather.facts.asynchronous);
  EXPECT_TRUE(gather.first);
  EXPECT_EQ(gather.products, 0);
  EXPECT_FALSE(program.collectives[1].facts.asynchronous);
  const PlacedCollective& reduction = program.collectives[2];  // the form of XLA's dumps
  EXPECT_EQ(reduction.facts.kind, Communication::reduce_scatter);
  EXPECT_EQ(reduction.facts.bytes_in, 4096 * 4096 * 2);
  EXPECT_EQ(reduction.facts.bytes_out, 512 * 4096 * 2);
  EXPECT_EQ(reduction.products, 1);
  EXPECT_EQ(reduction.phase(), schedule::Phase::backward);
  const PlacedCollective& last = program.collectives[3];
  EXPECT_FALSE(last.facts.asynchronous);
  EXPECT_TRUE(last.sliced);
  ASSERT_EQ(program.loops.size(), 1U);
  EXPECT_EQ(program.loops[0].trips, 4);
  EXPECT_THAT(program.order, ::testing::Contains("loop 0 x4: +AG0 -AG0 +AG1! -AG1 G +RS0 G -RS0"));
  EXPECT_THAT(hlo_report(program), HasSubstr("all-reduced, and only a slice is used"));
  EXPECT_THAT(hlo_report(program), HasSubstr("xla_gpu_enable_pipelined_all_gather=true"));
}

/// kProgram with `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kProgram;
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST(HloText, AdviceNamesTheFlagOfTheVersionThatCompiledIt) {
  const std::string newer = changed("\"is_pipelined\":false", "\"is_pipelined\":false,\"communication_domain\":\"X\"");
  EXPECT_THAT(hlo_report(place_collectives(parse_hlo_text(newer))),
              HasSubstr("XLA_FLAGS=--xla_gpu_pipeline_all_gather=on"));
  const std::string pipelined = changed("is_sync\":true", "is_sync\":false,\"is_pipelined\":true");
  EXPECT_THAT(hlo_report(place_collectives(parse_hlo_text(pipelined))), HasSubstr("XLA did not pipeline it"));
}

TEST(HloText, LoopsSayWhetherTwoIterationsAreOneAndTheirConditionsRunOnceMore) {
  const std::string doubled = changed("%while.1", "%while_double_buffer.1");
  EXPECT_THAT(hlo_report(place_collectives(parse_hlo_text(doubled))),
              HasSubstr("loop 0 x4 (two iterations in one): +AG0"));
  const std::string asks = changed("ROOT %less = pred[] fusion(%state.1)",
                                   "%all-reduce.9 = pred[] all-reduce(%state.1), replica_groups={}\n"
                                   "  ROOT %less = pred[] fusion(%state.1)");
  const HloProgram program = place_collectives(parse_hlo_text(asks));
  ASSERT_EQ(program.collectives.size(), 5U);
  EXPECT_EQ(program.collectives[0].name, "all-reduce.9");
  EXPECT_EQ(program.collectives[0].times, 5);
}

TEST(HloText, WhatWasGatheredAgainOrMovedByNobodyIsSaid) {
  EXPECT_THAT(hlo_report(place_collectives(parse_hlo_text(changed("jit(train)/jvp()/while/body/dot_general",
                                                                  "jit(train)/checkpoint/rematted_computation/dot")))),
              HasSubstr("AG0: gathered again"));
  EXPECT_THAT(hlo_report(place_collectives(parse_hlo_text(changed("%all-reduce.5", "%all-reduce.5.remat")))),
              HasSubstr("XLA's own rematerialisation"));
  EXPECT_THAT(hlo_report(place_collectives(parse_hlo_text(changed("all-reduce(%zero, %x)", "all-to-all(%zero, %x)")))),
              HasSubstr("nobody wrote an all_to_all"));
}

TEST(HloText, OnAClusterWhatProductsHideIsNotExposed) {
  config::Cluster cluster = config::load_cluster(FSDPBENCH_RECORDED_DIR "/../../../profiles/clusters/dgx-h100.toml");
  const HloModule module = parse_hlo_text(kProgram);
  const HloProgram program = place_collectives(module, &cluster);
  const PlacedCollective& first = program.collectives[0];
  EXPECT_GT(first.seconds, 0);
  EXPECT_DOUBLE_EQ(first.exposed_seconds, first.seconds);  // nothing is between
  const PlacedCollective& reduction = program.collectives[2];
  EXPECT_LT(reduction.exposed_seconds, reduction.seconds);
  cluster.nodes = 1;
  cluster.gpus_per_node = 4;
  EXPECT_THROW(place_collectives(module, &cluster), ConfigError);
}

TEST(HloText, WhatIsNoModuleIsSaidToBeNone) {
  EXPECT_THROW(parse_hlo_text("# a model\n"), ConfigError);
  EXPECT_THROW(parse_hlo_text("HloModule jit_f, is_scheduled=true\n"), ConfigError);
  EXPECT_THROW(parse_hlo_proto("no protobuf"), ConfigError);
  // Calls in one another, and a loop without end whose body does nothing.
  std::string text = "HloModule m\n\n%c0 (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n}\n";
  for (int i = 1; i < 70; ++i) {
    text += fmt::format(
        "\n%c{} (x: f32[]) -> f32[] {{\n  %x = f32[] parameter(0)\n  %a = f32[] call(%x), to_apply=%c{}\n}}\n", i,
        i - 1);
  }
  const std::string entry = "\nENTRY %m (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  ROOT %w = f32[] ";
  EXPECT_THROW(place_collectives(parse_hlo_text(text + entry + "call(%x), to_apply=%c69\n}\n")), ConfigError);
  const config::Cluster cluster =
      config::load_cluster(FSDPBENCH_RECORDED_DIR "/../../../profiles/clusters/dgx-h100.toml");
  const HloModule endless = parse_hlo_text(
      text + entry + "while(%x), body=%c0, backend_config={\"known_trip_count\":{\"n\":\"1000000000000\"}}\n}\n");
  EXPECT_THROW(place_collectives(endless, &cluster), ConfigError);
  EXPECT_THROW(
      parse_hlo_text("HloModule m\n\nENTRY %a (x: f32[]) -> f32[] {\n  ROOT %x = f32[1099511627776,1099511627776] "
                     "parameter(0)\n}\n"),
      ConfigError);
}

class JaxTrace : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = (folder_.path() / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  TemporaryFolder folder_;
};

/// How many rows of a kind a rank has, and what they take.
std::pair<std::int64_t, std::int64_t> sum_of(const RankRows& rank, Communication kind) {
  std::pair<std::int64_t, std::int64_t> sum;
  for (const DeviceRow& row : rank.device) {
    if (row.collective < 0 || rank.collectives[row.collective].kind != kind) continue;
    ++sum.first;
    sum.second += row.end_ns - row.begin_ns;
  }
  return sum;
}

TEST_F(JaxTrace, OfProcessorsHasARankForEachDeviceAndWhatJaxCounts) {
  std::ifstream file(kRecorded + "truth.json");
  const auto truth = nlohmann::json::parse(file);
  const JobTrace devices = read_job({kRecorded + "devices"});
  ASSERT_EQ(devices.ranks.size(), 8U);
  for (const RankRows& rank : devices.ranks) {
    const auto& thunks = truth["files"]["devices/rank0"][std::to_string(rank.rank)];
    const auto [gathers, gather_ns] = sum_of(rank, Communication::all_gather);
    EXPECT_EQ(gathers, thunks["all-gather"][0].get<std::int64_t>());
    EXPECT_NEAR(static_cast<double>(gather_ns), thunks["all-gather"][1].get<double>(), static_cast<double>(gathers));
    EXPECT_EQ(sum_of(rank, Communication::all_reduce).first, thunks["all-reduce"][0].get<std::int64_t>());
    EXPECT_EQ(rank.world_size, 8);
    ASSERT_EQ(rank.steps.size(), 3U);
    EXPECT_EQ(rank.steps.front().number, 10);
    EXPECT_EQ(rank.groups.front().ranks.size(), 8U);
  }
  const Recognition found = recognise(devices);
  EXPECT_TRUE(found.shards);
  EXPECT_THAT(found.name, HasSubstr("XLA"));
  EXPECT_FALSE(found.schedule);  // the order is the compiler's
  EXPECT_EQ(found.find("layout"), nullptr);
  const Explanation explained = explain(devices, found);
  EXPECT_EQ(explained.rank_steps, 24U);
  EXPECT_GT(explained.communication_ms, 0);

  const JobTrace processes = read_job({kRecorded + "processes"});
  ASSERT_EQ(processes.ranks.size(), 2U);
  EXPECT_EQ(processes.ranks[1].rank, 1);
  EXPECT_TRUE(processes.shared_clock);
  EXPECT_EQ(processes.ranks[1].groups.front().ranks, (std::vector<int>{0, 1}));
}

TEST_F(JaxTrace, AsJsonHasTheSameRowsWithoutSizes) {
  const JobTrace json = read_job({kRecorded + "json/host.trace.json.gz"}), whole = read_job({kRecorded + "devices"});
  ASSERT_EQ(json.ranks.size(), whole.ranks.size());
  for (std::size_t r = 0; r < json.ranks.size(); ++r) {
    EXPECT_EQ(json.ranks[r].device.size(), whole.ranks[r].device.size());
    EXPECT_EQ(sum_of(json.ranks[r], Communication::all_gather).first,
              sum_of(whole.ranks[r], Communication::all_gather).first);
    EXPECT_EQ(json.ranks[r].steps.size(), 3U);
  }
  EXPECT_EQ(json.ranks[0].collectives[0].elements_in, -1);
}

TEST_F(JaxTrace, OfAGpuHasStreamsLaunchesStepsAndPhases) {
  const std::string path = write("host.xplane.pb", testing::gpu_step("20").bytes());
  const JobTrace job = read_job({path});
  ASSERT_EQ(job.ranks.size(), 1U);
  const RankRows& rank = job.ranks.front();
  EXPECT_EQ(rank.device.size(), 15U);
  EXPECT_FALSE(rank.computes_on_host());
  for (const DeviceRow& row : rank.device) EXPECT_GE(row.launch, 0);
  ASSERT_EQ(rank.steps.size(), 3U);
  EXPECT_EQ(rank.steps[2].number, 42);
  ASSERT_TRUE(rank.xla);
  EXPECT_THAT(rank.xla->steps_told_by, HasSubstr("jit_train"));
  int compute = -1;
  const auto roles = stream_roles(rank, compute);
  ASSERT_EQ(roles.size(), 2U);
  EXPECT_EQ(roles[compute].role, "compute");
  EXPECT_EQ(rank.device[0].phase, static_cast<int>(schedule::Phase::forward));
  EXPECT_EQ(rank.device[2].phase, static_cast<int>(schedule::Phase::backward));
  const Recognition found = recognise(job);
  const Explanation explained = explain(job, found);
  EXPECT_NEAR(explained.exposed_communication_ms, 0.0005, 1e-9);
  EXPECT_NEAR(explained.computation_ms, 0.00135, 1e-9);
}

TEST_F(JaxTrace, CollectivesOnTheComputeStreamAreCollectives) {
  const JobTrace job = read_job({write("host.xplane.pb", testing::gpu_step("7").bytes())});
  int compute = -1;
  const auto roles = stream_roles(job.ranks.front(), compute);
  ASSERT_EQ(roles.size(), 1U);
  EXPECT_EQ(roles[0].role, "compute and communication");
  EXPECT_THAT(on_compute_stream(job.ranks.front()), ::testing::Contains(HasSubstr("no collective is asynchronous")));
  const Explanation explained = explain(job, recognise(job));
  EXPECT_NEAR(explained.exposed_communication_ms, 0.0005, 1e-9);
}

TEST_F(JaxTrace, SaysHowMuchOfComputationAreCollectivesAndTheFlagOfItsVersion) {
  const auto told = [&](const std::string& jaxlib) {
    const JobTrace job = read_job({write("host.xplane.pb", testing::synchronous_step(jaxlib).bytes())});
    return on_compute_stream(job.ranks.front());
  };
  const std::string with = "Gathers in a loop: XLA_FLAGS=--xla_gpu_", then = " begins them an iteration ahead";
  EXPECT_THAT(told("0.10.1"), ElementsAre(HasSubstr("2.150 of the 16.280 ms a step that it is busy, 13.2 %: XLA found"),
                                          HasSubstr("all_gather of 4.00 MiB in forward: 1.450 ms, 1 a step"),
                                          HasSubstr("reduce_scatter of 32.00 MiB in backward: 0.700 ms, 1 a step"),
                                          HasSubstr(with + "enable_pipelined_all_gather=true" + then)));
  EXPECT_THAT(told("0.11.1"), ::testing::Contains(HasSubstr(with + "pipeline_all_gather=on" + then)));
  EXPECT_THAT(told(""), ::testing::Contains(HasSubstr(with +
                                                      "enable_pipelined_all_gather=true (from JAX 0.11.1 on "
                                                      "--xla_gpu_pipeline_all_gather=on)" +
                                                      then)));
  // The tutorial explains this one.
  std::ifstream stored(std::string(FSDPBENCH_RECORDED_DIR) + "/../../foreign/synchronous.xplane.pb", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stored), {}), testing::synchronous_step("0.10.1").bytes());
}

TEST_F(JaxTrace, KernelsOfNoModuleHaveNoSteps) {
  testing::XSpace space;
  space.row("/device:GPU:0", "Stream #7(Compute)", "gemm", 100, 50, {{"hlo_op", std::string("dot.1")}});
  const JobTrace job = read_job({write("host.xplane.pb", space.bytes())});
  ASSERT_EQ(job.ranks.size(), 1U);
  ASSERT_TRUE(job.ranks[0].xla);
  EXPECT_EQ(job.ranks[0].xla->steps_told_by, "");
}

TEST_F(JaxTrace, TheFolderOfTheProfilerIsReadAndItsLastRecordingCounts) {
  const auto folder = folder_.path() / "plugins/profile";
  for (const char* run : {"2026_01_01_00_00_00", "2026_01_02_00_00_00"}) {
    std::filesystem::create_directories(folder / run);
    std::ofstream(folder / run / "vm.xplane.pb", std::ios::binary)
        << testing::gpu_step("20", run[9] == '1' ? 2 : 4).bytes();
    std::ofstream(folder / run / "vm.trace.json.gz") << "{}";
  }
  const JobTrace job = read_job({folder_.path().string()});
  ASSERT_EQ(job.ranks.size(), 1U);
  EXPECT_EQ(job.ranks[0].steps.size(), 4U);
}

TEST_F(JaxTrace, DamagedFilesAreReadOrRefusedWithASentence) {
  const std::string whole = testing::gpu_step("20").bytes();
  std::mt19937 random(7);
  for (std::size_t cut = 0; cut < whole.size(); cut += 61) {
    std::string bytes = whole.substr(0, cut);
    if (cut % 2 == 1) {
      bytes = whole;
      for (int i = 0; i < 8; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const std::string path = write("damaged.xplane.pb", bytes);
    try {
      const JobTrace job = read_job({path});
      explain(job, recognise(job));
    } catch (const Error& error) {
      EXPECT_THAT(std::string(error.what()), HasSubstr("damaged.xplane.pb"));
    }
  }
}

}  // namespace
}  // namespace fsdpbench::foreign
