#include "trace/validate.h"

#include <gmock/gmock.h>

#include <set>

#include "base/error.h"
#include "trace/event_reader.h"
#include "trace/support.h"
#include "trace/whole_file.h"

namespace fsdpbench::trace {
namespace {

const std::string kHead = R"({"schemaVersion":1,"distributedInfo":{"backend":"cpu","rank": 3},"traceEvents":[)";
const std::string kName = R"({"ph":"M","name":"process_name","pid":1,"tid":0,"ts":0,"args":{"name":"p"}})";
const std::string kSlice = R"({"ph":"X","name":"a","pid":1,"tid":1,"ts":10,"dur":100})";
const std::string kLaunch =
    R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":10,"dur":5,"args":{"correlation":7}})";
const std::string kKernel =
    R"({"ph":"X","cat":"kernel","name":"k","pid":2,"tid":7,"ts":20,"dur":5,"args":{"stream":7,"correlation":7}})";

std::string file(const std::vector<std::string>& events) {
  std::string text = kHead;
  for (std::size_t i = 0; i < events.size(); ++i) text += (i > 0 ? ",\n" : "\n") + events[i];
  return text + "\n]}\n";
}

TEST(SearchedText, FindsTheRankAsHtaDoes) {
  const auto rank_in = [](const std::string& text) {
    std::istringstream in(text);
    SearchedText searched(*in.rdbuf());
    while (searched.sbumpc() != std::char_traits<char>::eof()) continue;
    return searched.rank();
  };
  EXPECT_EQ(rank_in(R"({"rank": 12, )"), 12);
  EXPECT_EQ(rank_in(R"({"rank":12, "rank":  7})"), 7) << "a blank must follow";
  EXPECT_EQ(rank_in(R"({"rank": x, ""rank": 3 )"), 3);
  EXPECT_EQ(rank_in(R"({"Rank": 1})"), std::nullopt);
  constexpr std::size_t kPiece = 1 << 20;
  for (std::size_t at = kPiece - 12; at < kPiece + 2; ++at) {
    EXPECT_EQ(rank_in(std::string(at, 'x') + "\"rank\": 345,"), 345) << at;
  }
}

TEST(Validate, GoodFilesPass) {
  const std::string flow = R"({"ph":"s","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":10},)"
                           R"({"ph":"f","bp":"e","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":20})";
  const std::string inner = R"({"ph":"X","name":"b","pid":1,"tid":1,"ts":10,"dur":50})";
  const std::string touching = R"({"ph":"X","name":"b","pid":1,"tid":1,"ts":"110.000","dur":0})";
  const std::string counters =
      R"({"ph":"C","name":"c","pid":1,"ts":1,"args":{"v":1}},{"ph":"C","name":"c","pid":1,"ts":1,"args":{"v":2.5}})";
  const std::string bars = R"({"ph":"X","cat":"Trace","name":"t","pid":"Spans","tid":"x","ts":1,"dur":9})";
  // torch.profiler writes some itself, and viewers give each text a number of its own.
  const std::string texts = R"({"ph":"X","name":"a","pid":"Traces","tid":"PyTorch","ts":1,"dur":9},)"
                            R"({"ph":"X","name":"b","pid":"Traces","tid":"other","ts":5,"dur":9})";
  const std::string text = file({kName, kSlice, inner, touching, flow, counters, bars, texts});
  EXPECT_EQ(findings_text(validate_text(text)), "");
  EXPECT_EQ(findings_text(validate_text(file({kName, kLaunch, kKernel}))), "");
  EXPECT_EQ(findings_text(validate_text("[" + kName + "," + kSlice + "]")), "");
  EXPECT_EQ(findings_text(validate_text("[" + kName + ",\n" + kSlice + ",\n")), "") << "a list may be cut off";
  EXPECT_EQ(validate_text(file({kName, kSlice})).events, 2);
}

TEST(Validate, TheGoldenExampleOfTwoStreamsPasses) {
  const auto row = [](int correlation, const char* name, int stream, int begin, int end) {
    return R"({"ph":"X","cat":"kernel","name":")" + std::string(name) + R"(","pid":900000,"tid":)" +
           std::to_string(stream) + R"(,"ts":)" + std::to_string(begin) + R"(,"dur":)" + std::to_string(end - begin) +
           R"(,"args":{"stream":)" + std::to_string(stream) + R"(,"correlation":)" + std::to_string(correlation) + "}}";
  };
  const auto launch = [](int correlation, int begin) {
    return R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":4242,"tid":4243,"ts":)" +
           std::to_string(begin) + R"(,"dur":5,"args":{"correlation":)" + std::to_string(correlation) + "}}";
  };
  EXPECT_EQ(findings_text(validate_text(file(
                {kName,
                 R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":4242,"tid":4243,"ts":0,"dur":400})",
                 launch(101, 10), launch(102, 30), launch(103, 50), row(101, "gemm_bf16", 7, 100, 200),
                 row(103, "gemm_bf16", 7, 260, 300), row(102, "ncclDevKernel_AllGather_RING_LL", 20, 150, 250)}))),
            "");
}

/// A file of ours: a step of 100 us, of which 40 are computed and 60 exposed, its bound and its memory.
std::string ours(const std::string& exposed, const std::string& bound, const std::string& live,
                 const std::string& need = "") {
  return R"({"fsdpbench_schema":1,"traceEvents":[)"
         R"({"ph":"X","cat":"step","name":"step 0","pid":1,"tid":1,"ts":0,"dur":110,"args":{"step_us":100,"kept_bytes":8}},)"
         R"({"ph":"X","cat":"communication","name":"g","pid":1,"tid":3,"ts":10,"dur":50},)"
         R"({"ph":"X","cat":"computation","name":"f","pid":1,"tid":2,"ts":60,"dur":40},)"
         R"({"ph":"X","cat":"exposed","name":"link_bound","pid":1,"tid":7,)" +
         exposed + R"(},{"ph":"X","cat":"bound","name":"b","pid":1,"tid":8,)" + bound +
         R"(},{"ph":"C","name":"live bytes","pid":1,"tid":1,"ts":100,"args":{"a":3,"b":)" + live + "}}" + need + "]}";
}
const std::string kExposed = R"("ts":0,"dur":60)";
const std::string kBound = R"("ts":0,"dur":90,"args":{"bound_us":90,"lane":"compute"})";
std::string need(const std::string& from, const std::string& to) {
  return R"(,{"ph":"s","cat":"needed","name":"needed","id":1,"pid":1,"tid":3,"ts":)" + from +
         R"(},{"ph":"f","bp":"e","cat":"needed","name":"needed","id":1,"pid":1,"tid":2,"ts":)" + to + "}";
}

TEST(Validate, AnExplainedStepPasses) {
  EXPECT_EQ(findings_text(validate_text(ours(kExposed, kBound, "5", need("59.999", "60")))), "");
}

/// An op that takes no time has no inside: an arrow begins where it does, also if something else begins there after it.
TEST(Validate, AnArrowMayBeginInACollectiveThatTookNoTime) {
  const std::string gather = R"(,{"ph":"X","cat":"communication","name":"h","pid":1,"tid":3,"ts":60,"dur":0})";
  const std::string copy = R"(,{"ph":"X","cat":"copy","name":"c","pid":1,"tid":3,"ts":60,"dur":1})";
  EXPECT_EQ(findings_text(validate_text(ours(kExposed, kBound, "5", gather + copy + need("60", "60")))), "");
  EXPECT_NE(findings_text(validate_text(ours(kExposed, kBound, "5", copy + need("60", "60")))), "");
}

/// The host frees memory that it alone used when it comes to it, which may be after the lanes are done.
TEST(Validate, TheHostMayFreeAfterTheLanesAreDone) {
  const auto freed_at = [](const char* us) {
    return R"(,{"ph":"C","name":"live bytes","pid":1,"tid":1,"ts":)" + std::string(us) + R"(,"args":{"a":3,"b":5}})";
  };
  EXPECT_EQ(findings_text(validate_text(ours(kExposed, kBound, "9", freed_at("105")))), "");
  EXPECT_NE(findings_text(validate_text(ours(kExposed, kBound, "9", freed_at("111")))), "");
}

/// On a computed clock a step begins, and allocates, in the nanosecond in which the last one ended.
TEST(Validate, TheNextStepMayAllocateWhereTheLastEnds) {
  const auto steps = [](const char* before) {
    return std::string(
               R"({"fsdpbench_schema":1,"traceEvents":[)"
               R"({"ph":"X","cat":"step","name":"step 0","pid":1,"tid":1,"ts":0,"dur":50,"args":{"kept_bytes":8}},)"
               R"({"ph":"X","cat":"step","name":"step 1","pid":1,"tid":1,"ts":50,"dur":50,"args":{"kept_bytes":8}},)"
               R"({"ph":"C","name":"live bytes","pid":1,"tid":1,"ts":40,"args":{"a":)") +
           before +
           R"(}},{"ph":"C","name":"live bytes","pid":1,"tid":1,"ts":50,"args":{"a":20}},)"
           R"({"ph":"C","name":"live bytes","pid":1,"tid":1,"ts":90,"args":{"a":8}}]})";
  };
  EXPECT_EQ(findings_text(validate_text(steps("8"))), "");
  EXPECT_NE(findings_text(validate_text(steps("9"))), "");
}

/// Computation of one step may go on in the next, which then is computed and not explained.
TEST(Validate, AnExplainedStepMayBeginWithTheComputationOfTheLast) {
  const auto steps = [](const char* exposed_from) {
    return std::string(R"({"fsdpbench_schema":1,"traceEvents":[)"
                       R"({"ph":"X","cat":"step","name":"step 0","pid":1,"tid":1,"ts":0,"dur":50},)"
                       R"({"ph":"X","cat":"step","name":"step 1","pid":1,"tid":1,"ts":50,"dur":50},)"
                       R"({"ph":"X","cat":"computation","name":"f","pid":1,"tid":2,"ts":0,"dur":60},)"
                       R"({"ph":"X","cat":"exposed","name":"host_bound","pid":1,"tid":7,"ts":)") +
           exposed_from + "}]}";
  };
  EXPECT_EQ(findings_text(validate_text(steps(R"(60,"dur":40)"))), "");
  EXPECT_NE(findings_text(validate_text(steps(R"(61,"dur":39)"))), "");
  EXPECT_NE(findings_text(validate_text(steps(R"(50,"dur":50)"))), "");
}

struct Violation {
  Rule rule;
  std::string text;
  std::int64_t event;  ///< -1: the file
};

std::string kernel_with(const std::string& args) {
  return R"({"ph":"X","cat":"kernel","name":"k","pid":2,"tid":7,"ts":20,"dur":5,"args":{)" + args + "}}";
}

std::vector<Violation> violations() {
  const std::string s = R"({"ph":"s","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":10})";
  const std::string f = R"({"ph":"f","bp":"e","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":20})";
  const std::string counter = R"({"ph":"C","name":"c","pid":1,"ts":5,"args":{"v":1}})";
  return {
      {Rule::json, "{\"traceEvents\":[{]}", -1},
      {Rule::json, "", -1},
      {Rule::json, "{\"traceEvents\":[" + kName, -1},
      {Rule::json, "{\"traceEvents\":[{\"name\":\"\xff\"}]}", -1},
      {Rule::structure, "{\"events\":[]}", -1},
      {Rule::structure, "17", -1},
      {Rule::structure, file({"[1]"}), 0},
      {Rule::structure, file({kName, "17"}), 1},
      {Rule::structure, file({R"({"ph":"X","pid":1,"tid":1,"ts":1,"dur":1})"}), 0},
      {Rule::structure, file({R"({"ph":"M","name":"x","name":"y","pid":1})"}), 0},
      {Rule::structure, "{\"traceEvents\":[],\"traceEvents\":[]}", -1},
      {Rule::phase, file({R"({"name":"x","ts":1})"}), 0},
      {Rule::phase, file({R"({"ph":"Q","name":"x","ts":1})"}), 0},
      {Rule::number, file({R"({"ph":"X","name":"x","pid":1,"tid":1,"dur":1})"}), 0},
      {Rule::number, file({R"({"ph":"X","name":"x","pid":1,"tid":1,"ts":"soon","dur":1})"}), 0},
      {Rule::number, file({R"({"ph":"X","name":"x","pid":1,"tid":1,"ts":1e300,"dur":1})"}), 0},
      {Rule::process, file({R"({"ph":"X","name":"x","pid":-1,"tid":1,"ts":1,"dur":1})"}), 0},
      {Rule::process, file({R"({"ph":"X","name":"x","pid":1.5,"tid":1,"ts":1,"dur":1})"}), 0},
      {Rule::process, file({R"({"ph":"X","name":"x","pid":4294967296,"tid":1,"ts":1,"dur":1})"}), 0},
      {Rule::track, file({R"({"ph":"X","name":"x","pid":1,"tid":0,"ts":1,"dur":1})"}), 0},
      {Rule::track, file({R"({"ph":"X","name":"x","pid":1,"ts":1,"dur":1})"}), 0},
      {Rule::duration, file({R"({"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":-0.001})"}), 0},
      {Rule::duration, file({R"({"ph":"X","name":"x","pid":1,"tid":1,"ts":1})"}), 0},
      {Rule::nesting, file({kSlice, R"({"ph":"X","name":"b","pid":1,"tid":1,"ts":109.999,"dur":1})"}), 1},
      {Rule::flow_id, file({kSlice, s, f, s}), 3},
      {Rule::flow_id, file({kSlice, R"({"ph":"s","cat":"a","name":"a","pid":1,"tid":1,"ts":10})"}), 1},
      {Rule::flow_pair, file({kSlice, s}), 1},
      {Rule::flow_pair, file({kSlice, f}), 1},
      {Rule::flow_order, file({kSlice, R"({"ph":"s","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":21})", f}), 2},
      {Rule::flow_slice, file({kSlice, R"({"ph":"s","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":9})", f}), 1},
      {Rule::flow_slice,
       file({kSlice, s, R"({"ph":"f","bp":"e","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":110})"}), 2},
      {Rule::flow_slice, file({kSlice, s, R"({"ph":"f","cat":"a","name":"a","id":1,"pid":1,"tid":1,"ts":10})"}), 2},
      {Rule::counter, file({R"({"ph":"C","name":"c","pid":1,"ts":5,"args":{"v":"many"}})"}), 0},
      {Rule::counter, file({R"({"ph":"C","name":"c","pid":1,"ts":5})"}), 0},
      {Rule::counter_order, file({counter, R"({"ph":"C","name":"c","pid":1,"ts":4.999,"args":{"v":1}})"}), 1},
      {Rule::instant, file({R"({"ph":"i","name":"i","pid":1,"tid":1,"ts":5,"s":"x"})"}), 0},
      {Rule::metadata, file({R"({"ph":"M","name":"thread_name","pid":1,"tid":1})"}), 0},
      {Rule::metadata, file({R"({"ph":"M","name":"process_sort_index","pid":1,"args":{"sort_index":"x"}})"}), 0},
      {Rule::rank, R"({"distributedInfo":{"rank":3},"traceEvents":[]})", -1},
      {Rule::rank, R"({"config":{"rank": 1},"distributedInfo":{"rank": 3},"traceEvents":[]})", -1},
      {Rule::correlation, file({kName, kLaunch, kLaunch, kKernel}), 2},
      {Rule::correlation, file({kName, kLaunch, kernel_with(R"("stream":7)")}), 2},
      {Rule::launch, file({kName, kKernel}), 1},
      {Rule::launch,
       file(
           {kName,
            R"({"ph":"X","cat":"cuda_runtime","name":"l","pid":1,"tid":1,"ts":20.001,"dur":5,"args":{"correlation":7}})",
            kKernel}),
       2},
      {Rule::stream, file({kName, kLaunch, kernel_with(R"("correlation":7)")}), 2},
      {Rule::stream, file({kName, kLaunch, kernel_with(R"("correlation":7,"stream":0)")}), 2},
      {Rule::host_stream,
       file({kName, R"({"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":1,"dur":1,"args":{"stream":7}})"}), 1},
      {Rule::host_stream,
       file({kName,
             R"({"ph":"X","cat":"cuda_sync","name":"Event Sync","pid":1,"tid":1,"ts":1,"dur":1,"args":{"stream":7}})"}),
       1},
      {Rule::collective,
       file(
           {kName, kLaunch,
            R"({"ph":"X","cat":"kernel","name":"ncclX","pid":2,"tid":7,"ts":20,"dur":5,"args":{"stream":7,"correlation":7,"Collective name":"a","dtype":"Float","Group size":2}})"}),
       2},
      {Rule::collective,
       file(
           {kName, kLaunch,
            R"({"ph":"X","cat":"kernel","name":"ncclX","pid":2,"tid":7,"ts":20,"dur":5,"args":{"stream":7,"correlation":7,"Collective name":"a","dtype":"Float","Group size":"2","In msg nelems":1,"Out msg nelems":2}})"}),
       2},
      {Rule::row_name,
       file(
           {kName, kLaunch,
            R"({"ph":"X","cat":"kernel","name":"gather","pid":2,"tid":7,"ts":20,"dur":5,"args":{"stream":7,"correlation":7,"Collective name":"a","dtype":"Float","Group size":2,"In msg nelems":1,"Out msg nelems":2}})"}),
       2},
      {Rule::row_name,
       file(
           {kName, kLaunch,
            R"({"ph":"X","cat":"gpu_memcpy","name":"copy","pid":2,"tid":7,"ts":20,"dur":5,"args":{"stream":7,"correlation":7}})"}),
       2},
      {Rule::op_span,
       file(
           {kName, kLaunch,
            R"({"ph":"X","cat":"gpu_user_annotation","name":"op","pid":2,"tid":7,"ts":20,"dur":4,"args":{"step":1,"op":2}})",
            R"({"ph":"X","cat":"kernel","name":"k","pid":2,"tid":8,"ts":20,"dur":5,"args":{"stream":7,"correlation":7,"step":1,"op":2}})"}),
       3},
      {Rule::first_row, file({kLaunch, kKernel}), 0},
      {Rule::exposed, ours(R"("ts":0,"dur":59.999)", kBound, "5"), 0},
      {Rule::exposed, ours(R"("ts":0,"dur":60.001)", kBound, "5"), 2},
      {Rule::exposed, ours(R"("ts":0.001,"dur":59.999)", kBound, "5"), 0},
      {Rule::bound, ours(kExposed, R"("ts":0,"dur":100.001,"args":{"bound_us":90,"lane":"compute"})", "5"), 4},
      {Rule::bound, ours(kExposed, R"("ts":0,"dur":90,"args":{"lane":"compute"})", "5"), 4},
      {Rule::bound, ours(kExposed, R"("ts":1,"dur":90,"args":{"bound_us":90,"lane":"compute"})", "5"), 4},
      {Rule::memory, ours(kExposed, kBound, "6"), 0},
      {Rule::op_arrow, ours(kExposed, kBound, "5", need("50", "70")), 7},
  };
}

TEST(Validate, EachPlantedViolationIsFoundAndNothingElse) {
  std::set<Rule> tried;
  for (const Violation& violation : violations()) {
    const Validation validation = validate_text(violation.text);
    SCOPED_TRACE(violation.text);
    ASSERT_EQ(validation.findings.list().size(), 1U) << findings_text(validation);
    const Finding& finding = validation.findings.list().front();
    EXPECT_EQ(to_string(finding.rule), to_string(violation.rule));
    EXPECT_EQ(finding.event.value_or(-1), violation.event);
    EXPECT_TRUE(finding.message.size() > 10);
    tried.insert(violation.rule);
  }
  tried.insert(Rule::limit);  // below
  EXPECT_EQ(tried.size(), kEnumCount<Rule>);
}

TEST(Validate, ErrorsInJsonSayWhere) {
  const Validation validation = validate_text("{\"traceEvents\":[\n{\"ph\":\"X\",}]}");
  EXPECT_THAT(findings_text(validation), testing::HasSubstr("line 2"));
  EXPECT_THAT(findings_text(validation), testing::HasSubstr("byte 28"));
}

TEST(Validate, ANumberThatNothingHoldsIsSaidInOurWords) {
  const std::string said =
      findings_text(validate_text("{\"traceEvents\":[\n{\"ph\":\"X\",\"ts\":1e999999,\"dur\":}]}"));
  EXPECT_THAT(said, testing::HasSubstr("a number that is larger than any that can be read"));
  EXPECT_THAT(said, testing::HasSubstr("line 2, column 23"));
  EXPECT_THAT(said, testing::Not(testing::HasSubstr("json.exception")));
}

TEST(Validate, ErrorsInJsonSayWhereBehindManyEventsToo) {
  std::string text = "{\"traceEvents\":[\n";
  for (int i = 0; i < 30'000; ++i) text += kName + ",\n";
  const Validation validation = validate_text(text + "{\"ph\":\"M\",\"name\":\"n\",\"args\":{\"x\":[1,,2]}}]}");
  EXPECT_EQ(validation.findings.list().size(), 1U);
  EXPECT_THAT(findings_text(validation), testing::HasSubstr("line 30002, column 37"));
  EXPECT_THAT(findings_text(validation), testing::HasSubstr("byte " + std::to_string(text.size() + 37)));
}

TEST(Validate, EveryEventOfALongFileIsReadOnce) {
  std::string text = "[";
  for (int i = 0; i < 40'000; ++i)
    text += (i == 0 ? "" : ",") + kName + std::string(static_cast<std::size_t>(i % 97), ' ');
  for (const std::string& end : {std::string("]"), std::string(), std::string(","), std::string(",{\"ph\":")}) {
    const Validation validation = validate_text(text + end);
    EXPECT_EQ(validation.events, 40'000) << end;
    EXPECT_TRUE(validation.ok()) << findings_text(validation);
  }
}

TEST(Validate, WhatIsNoJsonIsFoundWhereverItStands) {
  for (const char* text :
       {R"([{"ph":"M","name":"n","pid":01}])", R"([{"ph":"M","name":"n","pid":1.}])",
        R"([{"ph":"M","name":"n","pid":nul}])", R"([{"ph":"M","name":"n","args":{"x":[1,{"y":+1}]}}])",
        R"([{"ph":"M","name":"\ud800"}])", R"([{"ph":"M","name":"\q"}])", "[{\"ph\":\"M\",\"name\":\"\n\"}]",
        R"([{"ph":"M","name":"n"}} ])", R"([{"ph":"M","name":"n"},])", R"([,{"ph":"M","name":"n"}])",
        R"([{"ph":"M","name":"n"}]x)", R"({"a":1 "traceEvents":[]})", R"({"traceEvents":[],})",
        R"({"\q":1,"traceEvents":[]})", R"({"a":[1,],"traceEvents":[]})", R"({,"traceEvents":[]})"}) {
    EXPECT_EQ(validate_text(text).findings.count(Rule::json), 1U) << text;
  }
}

TEST(Validate, WhatIsTooLongOrTooDeepEndsTheCheck) {
  const std::string event = R"({"ph":"M","name":"n","args":{"x":)";
  const std::string deep = std::string(2000, '[') + std::string(2000, ']');
  const Validation nested = validate_text(file({event + deep + "}}", kName}));
  EXPECT_EQ(nested.findings.count(Rule::limit), 1U) << findings_text(nested);
  const Validation longer = validate_text(file({kName, event + "\"" + std::string(20 << 20, 'x') + "\"}}"}));
  EXPECT_EQ(longer.findings.count(Rule::limit), 1U) << findings_text(longer);
  EXPECT_THAT(findings_text(longer), testing::HasSubstr("more than 16 MiB"));
}

TEST(Validate, LargeFilesAreCheckedInPart) {
  std::istringstream in(file({kName, kSlice, kSlice, kSlice}));
  const Validation validation = validate(in, {.most_events = 2, .most_findings = 5});
  EXPECT_EQ(findings_text(validation), "limit -1: The file has more than 2 events; the rest of it was not checked.\n");
}

TEST(Validate, ManyFindingsAreCounted) {
  const std::vector<std::string> events(100, R"({"ph":"?","name":"x"})");
  const Validation validation = validate_text(file(events));
  EXPECT_EQ(validation.findings.list().size(), 5U);
  EXPECT_EQ(validation.findings.count(Rule::phase), 100U);
}

TEST(Validate, AFindingIsOneLineOfBoundedLength) {
  const std::string key = "\"" + std::string(50'000, 'k') + "\\n\":1";
  const Validation validation = validate_text(file({"{" + key + "," + key + R"(,"ph":"M","name":"x"})"}));
  ASSERT_EQ(validation.findings.list().size(), 1U) << findings_text(validation);
  const std::string& message = validation.findings.list().front().message;
  EXPECT_LE(message.size(), kMostOfAFinding + 40) << message;  // and how much was left out
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(Validate, DeepAndWideInputIsSkipped) {
  const std::string deep(200'000, '[');
  EXPECT_EQ(validate_text("{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"n\",\"args\":{\"x\":" + deep)
                .findings.count(Rule::json),
            1U);
  EXPECT_EQ(validate_text(deep).findings.count(Rule::json), 1U) << "a list may be cut off, but only in an event";
  EXPECT_EQ(validate_text("[{\"args\":" + deep).findings.count(Rule::json), 0U);
  std::string wide = R"({"ph":"M","name":"n","args":{"k0":0)";
  for (int i = 1; i < 3000; ++i) wide += ",\"k" + std::to_string(i) + "\":" + std::to_string(i);
  EXPECT_TRUE(validate_text(file({wide + "}}"})).ok());
}

TEST(Validate, FilesThatCannotBeRead) {
  const TemporaryFolder folder;
  EXPECT_THROW(validate_file(folder / "nowhere.json"), ConfigError);
  EXPECT_THROW(validate_file(folder.path().string()), ConfigError);
  {
    WholeFile whole(folder / "cut.json.gz");
    whole.write(file(std::vector<std::string>(2000, kName)));
    whole.commit();
  }
  EXPECT_TRUE(validate_file(folder / "cut.json.gz").ok());
  std::filesystem::resize_file(folder / "cut.json.gz", std::filesystem::file_size(folder / "cut.json.gz") / 2);
  EXPECT_THAT(findings_text(validate_file(folder / "cut.json.gz")), testing::HasSubstr("cannot be read to its end"));
  std::ofstream(folder / "noise.json") << "\x1f\x8bnoise that is no gzip file";
  EXPECT_GT(validate_file(folder / "noise.json").findings.count(Rule::json), 0U);
}

TEST(ParsedEvent, MicrosecondsKeepTheirNanoseconds) {
  const auto of = [](const char* text) { return nanoseconds({Value::Type::number, 0, text}); };
  EXPECT_EQ(of("0"), 0);
  EXPECT_EQ(of("1795239471515266.204"), 1'795'239'471'515'266'204);
  EXPECT_EQ(of("-1.0019"), -1001);
  EXPECT_EQ(of("1.5e3"), 1'500'000);
  EXPECT_EQ(of("99999999999999999999999"), std::nullopt);
  EXPECT_EQ(of("1.2.3"), std::nullopt);
  EXPECT_EQ(of(""), std::nullopt);
}

/// A beginning and an end of an arrow whose ids are written so.
std::string arrow(const std::string& category, const std::string& from, const std::string& to) {
  const auto end = [&](const char* ph, const std::string& id) {
    return std::string(R"({"ph":")") + ph + R"(","cat":")" + category +
           R"(","name":"a","pid":1,"tid":1,"ts":1,"bp":"e","id":)" + id + "}";
  };
  return end("s", from) + "," + end("f", to);
}

TEST(Validate, ArrowsAreTheSameByCategoryNameAndIdHoweverItIsWritten) {
  const auto found = [](const std::string& events) {
    return findings_text(
        validate_text(R"([{"ph":"X","name":"x","cat":"c","pid":1,"tid":1,"ts":0,"dur":9},)" + events + "]"));
  };
  EXPECT_EQ(found(arrow("a", "7", "\"7\"")), "");
  EXPECT_EQ(found(arrow("a", "\"0x1f\"", "\"0x1f\"")), "");
  EXPECT_EQ(found(arrow("a", "7", "7") + "," + arrow("b", "7", "7")), "");
  EXPECT_NE(found(arrow("a", "7", "8")), "");
  EXPECT_NE(found(arrow("a", "\"7\"", "\"07\"")), "");
  EXPECT_NE(found(arrow("a", "99999999999999999999", "99999999999999999998")), "");
  EXPECT_NE(found(arrow("a", "7", "7") + "," + arrow("a", "7", "7")), "");
  std::string many = arrow("k0", "1", "1");
  for (int i = 1; i < 30; ++i) many += "," + arrow("k" + std::to_string(i), "1", "1");
  EXPECT_EQ(found(many), "");
  EXPECT_NE(found(many + "," + arrow("k25", "1", "1")), "");
}

}  // namespace
}  // namespace fsdpbench::trace
