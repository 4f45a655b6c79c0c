// The files of runs whose device told what it did.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trace/gpu_example.h"
#include "trace/merged_writer.h"
#include "trace/rank_writer.h"

namespace fsdpbench::trace {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

std::string gpu_rank_text(const GpuRun& run) {
  const TemporaryFolder folder;
  write_rank_trace(folder / "rank.json", run.trace, run.facts, run.time, run.label());
  return read_text(folder / "rank.json");
}
std::string merged_gpu_text(const GpuRun& run) {
  const TemporaryFolder folder;
  write_merged_trace(folder / "trace.json", {run.trace}, run.time, run.label());
  return read_text(folder / "trace.json");
}
/// Slices of these categories.
std::vector<Json> slices(const std::string& text, const std::set<std::string>& categories) {
  std::vector<Json> result;
  const Json file = Json::parse(text);
  for (const Json& event : file["traceEvents"]) {
    if (event["ph"] == "X" && categories.contains(event.value("cat", ""))) result.push_back(event);
  }
  return result;
}
const std::set<std::string> kDevice{"kernel", "gpu_memcpy", "gpu_memset"};
const std::set<std::string> kCalls{"cuda_runtime", "cuda_driver"};

std::int64_t ns(const Json& number) { return std::llround(number.get<double>() * 1000); }
std::int64_t begin_of(const Json& e) { return ns(e["ts"]); }
std::int64_t end_of(const Json& e) { return ns(e["ts"]) + ns(e["dur"]); }
std::pair<int, int> op_of(const Json& e) { return {e["args"]["step"], e["args"]["op"]}; }

TEST(GpuRankFile, TheGoldenRunHasRealRows) {
  const std::string text = gpu_rank_text(golden_gpu_run());
  EXPECT_EQ(findings_text(validate_text(text)), "");
  EXPECT_THAT(
      text,
      HasSubstr(
          R"({"ph":"X","cat":"cpu_op","name":"all_gather 1","pid":1000,"tid":1,"ts":30.000,"dur":20.000,"args":{"External id":2,"step":0,"op":1}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1000,"tid":1,"ts":30.000,"dur":5.000,"args":{"correlation":102,"External id":2,"step":0,"op":1,"op name":"all_gather 1"}},
{"ph":"M","name":"thread_name","pid":900000,"tid":20,"ts":0.000,"args":{"name":"stream 20 all_gather"}},
{"ph":"M","name":"thread_sort_index","pid":900000,"tid":20,"ts":0.000,"args":{"sort_index":20}},
{"ph":"X","cat":"gpu_user_annotation","name":"all_gather 1","pid":900000,"tid":20,"ts":150.000,"dur":100.000,"args":{"External id":2,"step":0,"op":1,"unit":"0","phase":"forward","bytes":4000}},
{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllGather_RING_LL","pid":900000,"tid":20,"ts":150.000,"dur":100.000,"args":{"device":0,"context":1,"stream":20,"correlation":102,"External id":2,"step":0,"op":1,"op name":"all_gather 1","Collective name":"_allgather_base","In msg nelems":1000,"Out msg nelems":2000,"Group size":2,"dtype":"Float","Process Group Name":"1","Process Group Description":"shard","Process Group Ranks":"[0, 1]","Seq":0}},
{"ph":"s","cat":"ac2g","name":"ac2g","pid":1000,"tid":1,"ts":30.000,"id":102},
{"ph":"f","cat":"ac2g","name":"ac2g","pid":900000,"tid":20,"ts":150.000,"id":102,"bp":"e"},
)"));
  EXPECT_EQ(slices(text, kDevice).size(), 3U);
}

TEST(GpuRankFile, RunsPassTheValidator) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const GpuRun run = synthetic_gpu_run(0, seed);
    EXPECT_EQ(findings_text(validate_text(gpu_rank_text(run))), "") << seed;
    EXPECT_EQ(findings_text(validate_text(merged_gpu_text(run))), "") << seed;
  }
}

TEST(GpuRankFile, EachActivityIsOneRowInsideItsOpWithOneLaunch) {
  const GpuRun run = synthetic_gpu_run(0, 3);
  const std::string text = gpu_rank_text(run);
  std::map<std::pair<int, int>, Json> spans, issues;
  for (const Json& e : slices(text, {"gpu_user_annotation"})) {
    EXPECT_TRUE(spans.emplace(op_of(e), e).second);
    EXPECT_FALSE(e["args"].contains("stream"));
    EXPECT_FALSE(e["args"].contains("correlation"));
  }
  for (const Json& e : slices(text, {"cpu_op"})) EXPECT_TRUE(issues.emplace(op_of(e), e).second);
  std::map<int, Json> launches;
  for (const Json& e : slices(text, kCalls)) {
    EXPECT_TRUE(launches.emplace(e["args"]["correlation"], e).second);
    const Json& issue = issues.at(op_of(e));
    EXPECT_GE(begin_of(e), begin_of(issue));
    EXPECT_LE(end_of(e), end_of(issue));
    EXPECT_EQ(e["args"]["External id"], issue["args"]["External id"]);
    EXPECT_EQ(e["cat"] == "cuda_driver", e["name"] == "cuLaunchKernelEx");
  }
  const std::vector<Json> rows = slices(text, kDevice);
  EXPECT_EQ(rows.size(), run.trace.activities.size());
  EXPECT_EQ(launches.size(), rows.size());
  EXPECT_EQ(issues.size(), run.trace.records.size());
  for (const Json& e : rows) {
    const Json& span = spans.at(op_of(e));
    EXPECT_GE(begin_of(e), begin_of(span));
    EXPECT_LE(end_of(e), end_of(span));
    EXPECT_TRUE(launches.contains(e["args"]["correlation"]));
    EXPECT_EQ(e["args"]["External id"], span["args"]["External id"]);
  }
}

TEST(GpuRankFile, TheClassOfARowIsItsOps) {
  const GpuRun run = synthetic_gpu_run(0, 3);
  std::map<std::string, int> fields_of;
  for (const Json& e : slices(gpu_rank_text(run), kDevice)) {
    const std::string name = e["name"], cat = e["cat"];
    const OpCategory category = run.labels.at(e["args"]["op"]).category;
    EXPECT_EQ(name.starts_with("nccl"), category == OpCategory::communication) << name;
    EXPECT_EQ(cat == "gpu_memcpy" && name.starts_with("Memcpy"), category == OpCategory::copy) << name;
    if (name == "void dma_gemm()") ADD_FAILURE() << "HTA would overlook it";
    EXPECT_EQ(name.starts_with("op "), e["args"].value("device name", "") == "void dma_gemm()");
    if (e["args"].contains("Collective name")) {
      ++fields_of[std::to_string(e["args"]["step"].get<int>()) + "/" + std::to_string(e["args"]["op"].get<int>())];
    }
  }
  EXPECT_EQ(fields_of.size(), 3U * 12U);
  for (const auto& [op, count] : fields_of) EXPECT_EQ(count, 1) << op;
}

TEST(GpuRankFile, WhatHalfOverlapsStandsAside) {
  GpuRun run = golden_gpu_run();
  Activity& late = run.trace.activities[2];  // of op 2, while op 0 still runs
  late.begin_ns = run.trace.records[2].begin_ns = 1'000'000 + 190'000;
  const TemporaryFolder folder;
  RankWriter writer(
      folder / "r.json",
      [&] {
        RankFacts f = run.facts;
        f.profiled = true;
        return f;
      }(),
      run.time, run.label());
  for (const TracedStep& step : steps_of(run.trace)) writer.step(step);
  writer.finish();
  const std::string text = read_text(folder / "r.json");
  EXPECT_EQ(findings_text(validate_text(text)), "");
  const Json row = slices(text, kDevice).back();
  EXPECT_EQ(row["tid"], 1'000'007);
  EXPECT_EQ(row["args"]["stream"], 7);
}

TEST(GpuRankFile, AKernelBeforeItsLaunchKeepsItsTimeAndItsArrowMoves) {
  GpuRun run = golden_gpu_run();
  run.trace.activities[0].launch_begin_ns = 1'000'000 + 120'000;  // during the kernel, which ran from 100 to 200
  run.trace.activities[0].launch_end_ns = 1'000'000 + 125'000;
  run.trace.records[1].issued_ns = 1'000'000 + 130'000;
  run.trace.records[2].issued_ns = 1'000'000 + 140'000;
  const std::string text = gpu_rank_text(run);
  EXPECT_THAT(text, HasSubstr(R"("name":"ac2g","pid":900000,"tid":7,"ts":120.000,"id":101)"));
  EXPECT_EQ(begin_of(slices(text, kDevice).front()), 100'000);
  // The validator says so, because readers then disagree about the order.
  const Validation validation = validate_text(text);
  ASSERT_EQ(validation.findings.list().size(), 1U);
  EXPECT_EQ(validation.findings.list()[0].rule, Rule::launch);
}

TEST(GpuRankFile, CallsOfTwoThreadsStandOneAfterTheOther) {
  GpuRun run = golden_gpu_run();
  Activity second = run.trace.activities[0];  // launched while the host was in its own call
  run.trace.activities[0].end_ns = second.begin_ns = 1'000'000 + 150'000;
  second.correlation = 104;
  second.launch_begin_ns += 2'000;
  second.launch_end_ns += 3'000;
  run.trace.activities.insert(run.trace.activities.begin() + 1, second);
  const std::string text = gpu_rank_text(run);
  EXPECT_EQ(findings_text(validate_text(text)), "");
  const std::vector<Json> calls = slices(text, kCalls);
  ASSERT_EQ(calls.size(), 4U);
  EXPECT_EQ(end_of(calls[0]), 15'000);
  EXPECT_EQ(begin_of(calls[1]), 15'000);
}

TEST(GpuRankFile, WithoutActivitiesEverythingIsAsBefore) {
  GpuRun run = golden_gpu_run();
  run.trace.activities.clear();
  run.trace.activity_names.clear();
  const std::string text = gpu_rank_text(run);
  EXPECT_EQ(text.find("gpu_user_annotation"), std::string::npos);
  EXPECT_EQ(text.find("External id"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("ncclDevKernel_AllGather(all_gather 1)"));
  EXPECT_THAT(text, HasSubstr("stream 7 compute"));
}

TEST(GpuRankFile, AnOpThatLostItsTimesHasItsRowsButNoSpan) {
  GpuRun run = golden_gpu_run();
  run.trace.records[1].begin_ns = run.trace.records[1].end_ns = 0;
  const std::string text = gpu_rank_text(run);
  EXPECT_EQ(findings_text(validate_text(text)), "");
  EXPECT_EQ(slices(text, {"gpu_user_annotation"}).size(), 2U);
  EXPECT_EQ(slices(text, kDevice).size(), 3U);
}

TEST(GpuMergedFile, KernelsLieUnderTheirOps) {
  const GpuRun run = synthetic_gpu_run(1, 5);
  const std::string text = merged_gpu_text(run);
  std::map<std::pair<int, int>, Json> ops;
  for (const Json& e : slices(text, {"computation", "communication", "copy"})) ops.emplace(op_of(e), e);
  const std::vector<Json> rows = slices(text, {"activity"});
  EXPECT_EQ(rows.size(), run.trace.activities.size());
  for (const Json& e : rows) {
    const Json& op = ops.at(op_of(e));
    EXPECT_EQ(e["tid"], op["tid"]);
    EXPECT_EQ(e["pid"], op["pid"]);
    EXPECT_GE(begin_of(e), begin_of(op));
    EXPECT_LE(end_of(e), end_of(op));
  }
}

}  // namespace
}  // namespace fsdpbench::trace
