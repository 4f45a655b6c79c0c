#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory_space.h"
#include "trace/json_window.h"
#include "trace/merged_writer.h"
#include "trace/rank_writer.h"
#include "trace/support.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string rank_text(const Example& example) {
  const TemporaryFolder folder;
  write_rank_trace(folder / "rank_0.json", example.trace, example.facts, example.time, example.label());
  return read_text(folder / "rank_0.json");
}

std::string merged_text(const std::vector<RankTrace>& ranks, const Example& example) {
  const TemporaryFolder folder;
  write_merged_trace(folder / "trace.json", ranks, example.time, example.label());
  return read_text(folder / "trace.json");
}

/// The indented lines of FORMAT.md's worked example, without their indentation.
std::vector<std::string> documented_events() {
  std::ifstream file(std::string(FSDPBENCH_SOURCE) + "/src/trace/FORMAT.md");
  std::vector<std::string> events;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("    {\"ph\"")) events.push_back(line.substr(4));
  }
  return events;
}

TEST(RankWriter, WritesTheWorkedExampleOfTheDocument) {
  const std::string text = rank_text(Example());
  const std::vector<std::string> events = documented_events();
  ASSERT_EQ(events.size(), 10U);
  std::string expected;
  for (const std::string& event : events) expected += "\n" + event;
  EXPECT_THAT(text, HasSubstr(expected + "\n]}\n"));
  EXPECT_THAT(text, HasSubstr("\"rank\": 0,"));
  EXPECT_EQ(findings_text(validate_text(text)), "");
}

/// Each op of every category, phase and lane, and each kind of collective, through both writers.
TEST(Writers, WriteEveryKindOfOp) {
  Example example;
  example.labels.clear();
  for (const OpCategory category : kEnumerators<OpCategory>) {
    for (const OpPhase phase : kEnumerators<OpPhase>) {
      for (const Lane lane : kLanes) {
        OpLabel op;
        op.name = std::string(to_string(category)) + " " + std::string(to_string(phase));
        op.category = category;
        op.phase = phase;
        op.lane = lane;
        if (category != OpCategory::communication) {
          example.labels.push_back(op);
          continue;
        }
        for (const CollectiveKind kind : kEnumerators<CollectiveKind>) {
          op.collective = {kind, 1, 1000, DType::f32};
          example.labels.push_back(op);
        }
      }
    }
  }
  std::int64_t now = 1'000'000;
  example.trace.records.clear();
  for (std::size_t i = 0; i < example.labels.size(); ++i, now += 100) {
    Record record{0, static_cast<std::int32_t>(i), now, 0, now + 10, 0};
    if (example.labels[i].on_lane()) record.begin_ns = now + 5;
    if (example.labels[i].collective) record.peers_arrived_ns = now + 6;
    if (example.labels[i].category == OpCategory::mark) record.end_ns = 0;
    example.trace.records.push_back(record);
  }
  example.trace.steps = {{1'000'000, now + 10, now}};
  EXPECT_EQ(findings_text(validate_text(rank_text(example))), "");
  const std::string merged = merged_text({example.trace}, example);
  EXPECT_EQ(findings_text(validate_text(merged)), "");
  const auto json = nlohmann::json::parse(merged);
  std::size_t coloured = 0;
  for (const auto& event : json["traceEvents"]) {
    if (!event.contains("cname")) continue;
    ++coloured;
    EXPECT_NE(event["cname"], "");
  }
  EXPECT_GT(coloured, 0U);
}

TEST(RankWriter, TheHeadNamesRankAndGroups) {
  Example example;
  example.facts.rank = 3;
  example.time.origin_unix_ns = 1'700'000'000'000'000'001;
  const auto json = nlohmann::json::parse(rank_text(example));
  EXPECT_EQ(json["distributedInfo"]["rank"], 3);
  EXPECT_EQ(json["distributedInfo"]["pg_config"].size(), 1U);
  EXPECT_EQ(json["distributedInfo"]["pg_config"][0]["ranks"], "[0, 1]");
  EXPECT_EQ(json["baseTimeNanoseconds"], 1'700'000'000'000'000'001);
}

TEST(RankWriter, CompressedIsTheSame) {
  const TemporaryFolder folder;
  const Example example;
  // The name stands inside the file: the same one in two folders.
  std::filesystem::create_directory(folder / "a");
  WholeFile plain(folder / "a/x.json"), zipped(folder / "a/x.json.gz");
  const std::string text = rank_text(example);
  std::string large;
  for (int i = 0; i < 3000; ++i) large += text;
  for (WholeFile* file : {&plain, &zipped}) {
    file->write(large);
    file->commit();
  }
  EXPECT_TRUE(read_text(folder / "a/x.json") == large);
  EXPECT_TRUE(read_text(folder / "a/x.json.gz") == large);
  EXPECT_LT(std::filesystem::file_size(folder / "a/x.json.gz"), large.size() / 5);

  write_rank_trace(folder / "r.json.gz", example.trace, example.facts, example.time, example.label());
  write_rank_trace(folder / "r.json", example.trace, example.facts, example.time, example.label());
  std::string named = read_text(folder / "r.json.gz");
  named.replace(named.find("r.json.gz"), 9, "r.json");
  EXPECT_EQ(named, read_text(folder / "r.json"));
}

TEST(RankWriter, CopiesZeroLengthsWaitsAndMarks) {
  Example example;
  OpLabel copy = example.labels[1];
  copy.name = "copy_out 0";
  copy.category = OpCategory::copy;
  copy.bytes = 100'000;
  OpLabel wait = copy;
  wait.name = "host_wait";
  wait.category = OpCategory::host;
  OpLabel mark = copy;
  mark.name = "reshard 0";
  mark.category = OpCategory::mark;
  OpLabel misleading = example.labels[1];
  misleading.name = "forward dma_layer";
  OpLabel down = copy;
  down.name = "device_to_host 0";
  down.lane = Lane::device_to_host;
  example.labels = {copy, down, wait, mark, misleading};
  example.trace.records = {{0, 0, 1'000'000, 1'010'000, 1'110'000, 0},
                           {0, 1, 1'001'000, 1'110'000, 1'110'000, 0},
                           {0, 2, 1'002'000, 0, 1'120'000, 0},
                           {0, 3, 1'120'000, 0, 0, 0},
                           {0, 4, 1'120'000, 1'121'000, 1'300'000, 0}};
  example.trace.memory = {{1'000'500, {1, 2, 3, 4, 5, 6}, 64}, {1'120'500, {1, 0, 3, 4, 5, 6}, 64}};
  const std::string text = rank_text(example);
  EXPECT_EQ(findings_text(validate_text(text)), "");
  EXPECT_THAT(text, HasSubstr("Memcpy DtoD (copy_out 0)"));
  EXPECT_THAT(text, HasSubstr("Memcpy DtoH (device_to_host 0)"));
  EXPECT_THAT(text, HasSubstr("device_to_host\"}}")) << "its track is named";
  EXPECT_THAT(text, HasSubstr("\"memory bandwidth (GB/s)\":1}"));
  EXPECT_THAT(text, HasSubstr("\"cudaEventSynchronize\""));
  EXPECT_THAT(text, HasSubstr("\"cat\":\"cpu_op\",\"name\":\"reshard 0\""));
  EXPECT_THAT(text, HasSubstr("\"name\":\"op 4\""));
  EXPECT_THAT(text, HasSubstr("\"allocated\":21,\"reserved\":64"));
  EXPECT_THAT(text, HasSubstr("\"Bytes\":-2,\"Total Allocated\":19"));
  EXPECT_EQ(findings_text(validate_text(merged_text({example.trace}, example))), "");
}

TEST(MergedWriter, EightRanksPassTheValidator) {
  const Example example;
  std::vector<RankTrace> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    RankTrace trace = example.trace;
    trace.rank = rank;
    for (std::int32_t step = 1; step < 5; ++step) {
      const std::int64_t later = step * 400'000;
      trace.steps.push_back({1'000'000 + later, 1'300'000 + later});
      for (std::size_t i = 0; i < 2; ++i) {
        Record record = example.trace.records[i];
        record.step = step;
        for (std::int64_t* time : {&record.issued_ns, &record.begin_ns, &record.end_ns, &record.peers_arrived_ns}) {
          if (*time > 0) *time += later;
        }
        trace.records.push_back(record);
      }
      trace.memory.push_back({1'010'000 + later, {}, 0});
    }
    ranks.push_back(trace);
  }
  const std::string text = merged_text(ranks, example);
  EXPECT_EQ(findings_text(validate_text(text)), "");
  const auto json = nlohmann::json::parse(text);
  std::map<std::string, int> count;
  for (const auto& event : json["traceEvents"]) ++count[event["ph"]];
  EXPECT_EQ(count["s"], 8 * 5 * 2);
  EXPECT_EQ(count["f"], 8 * 5 * 2);
  EXPECT_EQ(count["C"], 8 * (5 * 2 + 4 + 1));  // gathers, live bytes, and what is reserved, which stays
  EXPECT_THAT(text, HasSubstr(R"("name":"gathers in flight","pid":1,"tid":1,"ts":10.000,"args":{"gathers":1})"));
  EXPECT_THAT(text, HasSubstr(R"("name":"gathers in flight","pid":1,"tid":1,"ts":250.000,"args":{"gathers":0})"));
}

TEST(MergedWriter, WaitsHaveInstantsAndClassesColours) {
  Example example;
  example.labels[1].category = OpCategory::host;
  example.trace.records[1] = {0, 1, 1'030'000, 0, 1'260'000, 0};
  const std::string text = merged_text({example.trace}, example);
  EXPECT_THAT(text,
              HasSubstr(R"({"ph":"i","cat":"host","name":"forward blocks.0","pid":1,"tid":1,"ts":30.000,"s":"t"})"));
  EXPECT_EQ(findings_text(validate_text(text)), "");
}

/// The slice of an op with this category; null if there is none.
nlohmann::json slice(const std::string& text, const std::string& category, int op) {
  const auto json = nlohmann::json::parse(text);
  for (const auto& event : json["traceEvents"]) {
    if (event.value("cat", "") == category && event.contains("args") && event["args"].value("op", -1) == op)
      return event;
  }
  return {};
}

TEST(MergedWriter, TheLastIssueEndsWhereTheHostHadIssuedTheStep) {
  Example example;
  EXPECT_EQ(slice(merged_text({example.trace}, example), "issue", 1)["dur"], 15.0);
  example.trace.steps[0].issued_ns = 0;  // not known: no later than the step
  EXPECT_EQ(slice(merged_text({example.trace}, example), "issue", 1)["dur"], 270.0);
}

TEST(Writers, AHostThatIsDoneAfterItsLanesMakesTheStepLonger) {
  Example example;
  example.trace.steps[0].issued_ns = example.trace.steps[0].end_ns + 3'227;
  EXPECT_EQ(findings_text(validate_text(merged_text({example.trace}, example))), "");
  EXPECT_EQ(findings_text(validate_text(rank_text(example))), "");
}

TEST(MergedWriter, HiddenCollectivesHaveTheirKindsColourAndExposedOnesAreRed) {
  Example example;  // the gather runs from 0.150 to 0.250 ms
  const auto gather = [&](std::int64_t begin_us, std::int64_t end_us) {
    example.trace.records[1].begin_ns = 1'000'000 + 1000 * begin_us;
    example.trace.records[1].end_ns = 1'000'000 + 1000 * end_us;
    return slice(merged_text({example.trace}, example), "communication", 0);
  };
  const auto exposed = gather(260, 300), hidden = gather(140, 260), half = gather(190, 200);
  EXPECT_EQ(exposed["cname"], "terrible");
  EXPECT_EQ(exposed["args"]["exposed_us"], 100.0);
  EXPECT_EQ(hidden["cname"], "thread_state_iowait");
  EXPECT_EQ(hidden["args"]["exposed_us"], 0.0);
  EXPECT_EQ(half["args"]["exposed_us"], 90.0);
  example.labels[0].collective->kind = CollectiveKind::reduce_scatter;
  EXPECT_EQ(gather(140, 260)["cname"], "thread_state_uninterruptible");
}

/// The worked example, explained: nothing is computed before the forward at 0.260 ms.
std::string explained_text(Example example, const StepExplanation& explanation) {
  const TemporaryFolder folder;
  write_merged_trace(folder / "trace.json", {example.trace}, example.time, example.label(), {},
                     [&](std::size_t, std::size_t) { return explanation; });
  return read_text(folder / "trace.json");
}

StepExplanation explanation_of_the_example() {
  StepExplanation explanation;
  explanation.exposed = {{{1'000'000, 1'150'000}, "host_bound", -1, -1, ""},
                         {{1'150'000, 1'200'000}, "straggler", 0, 1, "Look at rank 1."},
                         {{1'200'000, 1'260'000}, "link_bound", 0, -1, "Buy a \"link\"."}};
  explanation.memory = {{1'000'000, {4, 0, 0, 0, 0, 0}},
                        {1'150'000, {4, 8, 0, 0, 0, 0}},
                        {1'300'000, {4, 8, 0, 1, 0, 0}},
                        {1'300'000, {4, 0, 0, 0, 0, 0}}};
  explanation.kept_bytes = 4;
  explanation.bound = StepBound{90'000, Lane::all_gather, 50'000};
  return explanation;
}

TEST(MergedWriter, AnExplainedStepSaysWhyAndWhatNeededWhat) {
  Example example;
  example.labels[0].needed_by = 1;
  const std::string text = explained_text(example, explanation_of_the_example());
  EXPECT_EQ(findings_text(validate_text(text)), "");
  for (
      const char* event : {
          R"({"ph":"X","cat":"exposed","name":"host_bound","pid":1,"tid":7,"ts":0.000,"dur":150.000,"args":{"step":0}})",
          R"({"ph":"X","cat":"exposed","name":"straggler","pid":1,"tid":7,"ts":150.000,"dur":50.000,"args":{"step":0,"op":0,"op name":"all_gather 0","unit":"0","late_rank":1,"advice":"Look at rank 1."}})",
          R"("advice":"Buy a \"link\"."}})",
          R"({"ph":"X","cat":"bound","name":"bound by all_gather","pid":1,"tid":8,"ts":0.000,"dur":90.000,"args":{"step":0,"step_us":300.000,"bound_us":90.000,"lane":"all_gather","lane_us":50.000}})",
          R"({"ph":"s","cat":"needed","name":"needed","pid":1,"tid":3,"ts":249.999,"id":2})",
          R"({"ph":"f","cat":"needed","name":"needed","pid":1,"tid":2,"ts":260.000,"id":2,"bp":"e"})",
          R"("name":"live bytes","pid":1,"tid":1,"ts":150.000,"args":{"parameter_shards":4,"unsharded_parameters":8,)",
      }) {
    EXPECT_THAT(text, HasSubstr(event));
  }
  EXPECT_EQ(text.find("\"optimizer\":1"), std::string::npos) << "of one moment the last level counts";
}

GpuSample gpu_sample(std::int64_t time_ns, std::optional<std::int32_t> sm_mhz, std::optional<std::int32_t> power_mw,
                     std::optional<std::int32_t> temperature_c) {
  GpuSample sample;
  sample.time_ns = sample.until_ns = time_ns;
  sample.sm_mhz = sm_mhz;
  sample.power_mw = power_mw;
  sample.temperature_c = temperature_c;
  return sample;
}

TEST(MergedWriter, GpusHaveCountersOfClockPowerAndTemperatureWhereTheyChange) {
  EXPECT_EQ(explained_text(Example(), explanation_of_the_example()).find("SM clock"), std::string::npos);
  // The first is from before the step; the third tells nothing of the clock, the last nothing new.
  const std::vector<GpuSample> samples{gpu_sample(900'000, 1980, 655'500, 61), gpu_sample(1'100'000, 1410, 655'500, 62),
                                       gpu_sample(1'200'000, std::nullopt, 700'000, 62),
                                       gpu_sample(1'250'000, 1410, 700'000, std::nullopt)};
  StepExplanation explanation = explanation_of_the_example();
  explanation.gpu = samples;
  const std::string text = explained_text(Example(), explanation);
  EXPECT_EQ(findings_text(validate_text(text)), "");
  std::vector<std::string> seen;
  const auto json = nlohmann::json::parse(text);
  for (const auto& event : json["traceEvents"]) {
    const std::string name = event["name"];
    if (name != "SM clock" && !name.starts_with("GPU ")) continue;
    EXPECT_EQ(event["ph"], "C");
    EXPECT_EQ(event["pid"], 1);
    seen.push_back(fmt::format("{} {} {}", name, event["ts"].dump(), event["args"].dump()));
  }
  EXPECT_THAT(seen, ElementsAre(R"(SM clock 0.0 {"sm_mhz":1980})", R"(GPU power 0.0 {"power_w":655.5})",
                                R"(GPU temperature 0.0 {"temperature_c":61})", R"(SM clock 100.0 {"sm_mhz":1410})",
                                R"(GPU temperature 100.0 {"temperature_c":62})", R"(GPU power 200.0 {"power_w":700})"));
}

TEST(MergedWriter, WhatClocksSayRanBeforeItsCollectiveHasNoArrow) {
  Example example;
  example.labels[0].needed_by = 1;
  example.trace.records[0].end_ns = 1'260'002;
  const std::string text = merged_text({example.trace}, example);
  EXPECT_EQ(text.find("\"needed\""), std::string::npos);
  EXPECT_EQ(findings_text(validate_text(text)), "");
}

TEST(TraceCheck, AStepMayBeginInTheNanosecondInWhichTheLastOneEnded) {
  Example example;
  StepExplanation explanation = explanation_of_the_example();
  const std::int64_t length = 300'000;
  example.trace.steps.push_back({1'300'000, 1'600'000, 1'345'000});
  for (std::size_t i = 0; i < 2; ++i) {
    Record record = example.trace.records[i];
    record.step = 1;
    for (std::int64_t* time : {&record.issued_ns, &record.begin_ns, &record.end_ns, &record.peers_arrived_ns}) {
      if (*time > 0) *time += length;
    }
    example.trace.records.push_back(record);
  }
  const TemporaryFolder folder;
  write_merged_trace(folder / "trace.json", {example.trace}, example.time, example.label(), {},
                     [&](std::size_t, std::size_t step) {
                       StepExplanation shifted = explanation;
                       for (ExposedSpan& span : shifted.exposed) {
                         span.time.begin += static_cast<std::int64_t>(step) * length;
                         span.time.end += static_cast<std::int64_t>(step) * length;
                       }
                       for (LiveBytes& level : shifted.memory)
                         level.time_ns += static_cast<std::int64_t>(step) * length;
                       shifted.memory.front().live[1] = step == 0 ? 0 : 9;  // allocated at once
                       return shifted;
                     });
  EXPECT_EQ(findings_text(validate_text(read_text(folder / "trace.json"))), "");
}

/// Findings in the explained example after `from` in it became `to`.
std::string damaged(const std::string& from, const std::string& to) {
  Example example;
  example.labels[0].needed_by = 1;
  std::string text = explained_text(example, explanation_of_the_example());
  const std::size_t at = text.find(from);
  if (at == std::string::npos) return "nothing to damage";
  text.replace(at, from.size(), to);
  return findings_text(validate_text(text));
}

TEST(TraceCheck, FindsDamageToWhatWeWrite) {
  EXPECT_EQ(damaged("\"live bytes\"", "\"live bytes\""), "");
  // An exposed slice moved, cut, lengthened, gone.
  EXPECT_THAT(damaged(R"("ts":150.000,"dur":50.000,"args":{"step":0,"op":0,)",
                      R"("ts":149.000,"dur":51.000,"args":{"step":0,"op":0,)"),
              HasSubstr("exposed "));
  EXPECT_THAT(damaged(R"("dur":60.000,"args":{"step":0,"op":0,)", R"("dur":59.999,"args":{"step":0,"op":0,)"),
              HasSubstr("exposed "));
  EXPECT_THAT(damaged(R"("dur":60.000,"args":{"step":0,"op":0,)", R"("dur":60.001,"args":{"step":0,"op":0,)"),
              HasSubstr("exposed "));
  EXPECT_THAT(damaged(R"("cat":"exposed","name":"straggler")", R"("cat":"hidden","name":"straggler")"),
              HasSubstr("exposed "));
  EXPECT_THAT(damaged(R"("name":"host_bound","pid":1)", R"("name":"host_bound","pid":9)"), HasSubstr("exposed "));
  // A computation moved.
  EXPECT_THAT(damaged(R"("ts":260.000,"dur":40.000,"cname")", R"("ts":261.000,"dur":39.000,"cname")"),
              HasSubstr("exposed "));
  // The bound longer than its step, or without its lane.
  EXPECT_THAT(damaged(R"("ts":0.000,"dur":90.000)", R"("ts":0.000,"dur":300.001)"), HasSubstr("bound "));
  EXPECT_THAT(damaged(R"("lane":"all_gather",)", ""), HasSubstr("bound "));
  // The memory counter ends elsewhere; its last event is gone; the step keeps something else.
  EXPECT_THAT(damaged(R"("ts":300.000,"args":{"parameter_shards":4,)", R"("ts":300.000,"args":{"parameter_shards":5,)"),
              HasSubstr("memory "));
  EXPECT_THAT(damaged(R"("name":"live bytes","pid":1,"tid":1,"ts":300.000)",
                      R"("name":"dead bytes","pid":1,"tid":1,"ts":300.000)"),
              HasSubstr("memory "));
  EXPECT_THAT(damaged(R"("kept_bytes":4)", R"("kept_bytes":5)"), HasSubstr("memory "));
  // Arrows that begin or end beside their slices.
  EXPECT_THAT(damaged(R"("tid":3,"ts":249.999,"id":2)", R"("tid":3,"ts":250.000,"id":2)"), HasSubstr("flow_slice "));
  EXPECT_THAT(damaged(R"("tid":2,"ts":260.000,"id":2)", R"("tid":2,"ts":261.000,"id":2)"), HasSubstr("op_arrow "));
  EXPECT_THAT(damaged(R"("tid":3,"ts":150.000,"id":1)", R"("tid":3,"ts":150.001,"id":1)"), HasSubstr("op_arrow "));
  EXPECT_THAT(damaged(R"("tid":2,"ts":260.000,"id":2)", R"("tid":2,"ts":260.000,"id":3)"), HasSubstr("flow_pair "));
}

TEST(MergedWriter, ARunWithoutStepsIsAnEmptyTrace) {
  const std::string text = merged_text({RankTrace{}}, Example());
  EXPECT_EQ(findings_text(validate_text(text)), "");
}

TEST(MergedWriter, TheCategoriesAreThoseOfTheMemory) {
  Example example;
  example.trace.memory = {{1'010'000, {}, 0}};
  const std::string text = merged_text({example.trace}, example);
  std::string args;
  for (MemoryCategory category : kMemoryCategories) {
    args += std::string(args.empty() ? "" : ",") + "\"" + std::string(to_string(category)) + "\":0";
  }
  EXPECT_THAT(text, HasSubstr("\"name\":\"live bytes\",\"pid\":1,\"tid\":1,\"ts\":10.000,\"args\":{" + args + "}"));
}

TEST(Writers, HostileTextsStayTexts) {
  constexpr char kHostile[] =
      "</script><b>\"\\\n\t\x01\x7f/../../etc/passwd\xff\xc0\xaf\xed\xa0\x80\xf5 \xc3\xa9 \xe2\x9c\x93 "
      "\xf0\x9f\x98\x80\0end";
  const std::string hostile(kHostile, sizeof kHostile - 1);
  Example example;
  for (OpLabel& label : example.labels) label.name = label.unit = hostile;
  example.facts.backend = hostile;
  example.facts.groups[1].name = example.facts.groups[1].description = hostile;
  for (const std::string& text : {rank_text(example), merged_text({example.trace}, example)}) {
    EXPECT_EQ(findings_text(validate_text(text)), "");
    EXPECT_EQ(text.find("</script"), std::string::npos);
    EXPECT_EQ(text.find('\x01'), std::string::npos);
    const auto json = nlohmann::json::parse(text);
    bool seen = false;
    for (const auto& event : json["traceEvents"]) {
      if (!event.contains("args") || !event["args"].contains("unit")) continue;
      const std::string unit = event["args"]["unit"];
      EXPECT_TRUE(unit.starts_with("</script><b>\"\\\n\t\x01\x7f/../../etc/passwd\xEF\xBF\xBD")) << unit;
      EXPECT_TRUE(unit.ends_with(std::string("\xc3\xa9 \xe2\x9c\x93 \xf0\x9f\x98\x80\0end", 15))) << unit;
      seen = true;
    }
    EXPECT_TRUE(seen);
  }
}

TEST(JsonStream, NumbersAreExact) {
  const TemporaryFolder folder;
  WholeFile file(folder / "n");
  JsonStream json(file);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max(), least = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t ns : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{999'999}, most, least}) {
    json.microseconds(ns);
    json.raw(' ');
  }
  json.integer(least);
  json.raw(' ');
  json.number(0.1);
  json.raw(' ');
  json.number(1.0 / 0.0);
  json.flush();
  file.commit();
  EXPECT_EQ(read_text(folder / "n"),
            "0.000 0.001 -0.001 999.999 9223372036854775.807 -9223372036854775.808 -9223372036854775808 0.1 null");
}

}  // namespace
}  // namespace fsdpbench::trace
