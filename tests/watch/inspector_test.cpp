#include "foreign/watch/sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fsdpbench::watch {
namespace {

using nlohmann::json;

// As plugins/profiler/inspector/inspector_json.cc writes it, with and without NCCL_INSPECTOR_DUMP_VERBOSE.
constexpr const char* kLine =
    R"({"header":{"id":"0x7f8c496ae9f661","comm_name":"unknown","rank":2,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1748030377748202,"hostname":"node-7","pid":1639453},"coll_perf":{"coll":"AllReduce","coll_sn":1407,"coll_msg_size_bytes":17179869184,"coll_exec_time_us":61974,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":277.210914,"coll_busbw_gbs":485.119099}})";

TEST(InspectorTest, ALineIsACollectiveOfARank) {
  JobView job;
  ASSERT_EQ(add_inspector_line(job, json::parse(kLine)), "");
  const Communicator& communicator = job.communicators.at("NCCL Inspector/0x7f8c496ae9f661");
  EXPECT_EQ(communicator.size, 8);
  EXPECT_EQ(communicator.nodes, 1);
  const Operation& one = communicator.members.at(2).operations.at(0);
  EXPECT_EQ(one.sequence, 1407);
  EXPECT_EQ(one.took_ns, 61'974'000);
  EXPECT_EQ(one.told_ns, 1'748'030'377'748'202'000);
  EXPECT_EQ(one.bytes, 17'179'869'184);
}

TEST(InspectorTest, TheTraceOfAVerboseLineSaysWhenItBegan) {
  JobView job;
  json line = json::parse(kLine);
  line["coll_perf"]["event_trace_ts"] = {{"coll_start_ts", 1748030377000000}};
  ASSERT_EQ(add_inspector_line(job, line), "");
  EXPECT_EQ(job.communicators.begin()->second.members.at(2).operations.at(0).came_ns, 1'748'030'377'000'000'000);
}

TEST(InspectorTest, SendsAreTakenAndNotKept) {
  JobView job;
  json line = json::parse(kLine);
  line["p2p_perf"] = {{"p2p", "Send"}, {"p2p_sn", 3}};
  line.erase("coll_perf");
  EXPECT_EQ(add_inspector_line(job, line), "");
  EXPECT_TRUE(job.communicators.empty());
}

TEST(InspectorTest, EachWrongValueIsRefused) {
  const auto refused = [](const char* part, const char* key, const json& value) {
    JobView job;
    json line = json::parse(kLine);
    line[part][key] = value;
    return !add_inspector_line(job, line).empty() && job.communicators.empty();
  };
  EXPECT_TRUE(refused("header", "rank", -1));
  EXPECT_TRUE(refused("header", "rank", 8));
  EXPECT_TRUE(refused("header", "n_ranks", "8"));
  EXPECT_TRUE(refused("header", "id", 5));
  EXPECT_TRUE(refused("metadata", "dump_timestamp_us", 18446744073709551615U));
  EXPECT_TRUE(refused("coll_perf", "coll_sn", 1.5));
  EXPECT_TRUE(refused("coll_perf", "coll_exec_time_us", nullptr));
  EXPECT_TRUE(refused("coll_perf", "coll", ""));
}

TEST(StepLinesTest, ALineIsAStepOfARank) {
  JobView job;
  const json line = json::parse(
      R"({"fsdpbench_step":12,"rank":1,"ranks":4,"host":"a","ended_ns":1795624223861210050,"step_ms":105.5,"gathers_ms":4,"reductions_ms":2.5,"own_ms":1})");
  ASSERT_EQ(add_step_line(job, line), "");
  EXPECT_EQ(job.world, 4);
  EXPECT_EQ(job.ranks.at(1).host, "a");
  EXPECT_EQ(job.ranks.at(1).steps.back().waits_ms, 7.5);
  for (const char* key : {"rank", "ranks", "ended_ns", "step_ms", "fsdpbench_step"}) {
    json wrong = line;
    wrong[key] = "x";
    EXPECT_NE(add_step_line(job, wrong), "") << key;
  }
}

}  // namespace
}  // namespace fsdpbench::watch
