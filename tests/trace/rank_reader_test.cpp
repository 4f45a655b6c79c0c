// A RankWriter's file comes back, and a file that none wrote is refused with the place.
#include "trace/rank_writer.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "trace/support.h"

namespace fsdpbench::trace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Times in the file count from its 0, and one nanosecond is added.
constexpr std::int64_t kShift = 1'000'000 - 1;

std::string message_of(const std::string& path) {
  try {
    read_rank_trace(path);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(RankReader, RecordsComeBackToTheNanosecond) {
  Example example;
  // A wait of the host and an op without work, then a second step.
  OpLabel wait, mark;
  wait.name = "host_wait";
  wait.category = OpCategory::host;
  mark.name = "reshard 0";
  mark.category = OpCategory::mark;
  example.labels.push_back(wait);
  example.labels.push_back(mark);
  example.trace.rank = example.facts.rank = 1;
  example.trace.records.push_back({0, 2, 1'046'001, 0, 1'299'999, 0});
  example.trace.records.push_back({0, 3, 1'299'999, 0, 0, 0});
  example.trace.steps.front().issued_ns = 1'300'000;
  example.trace.records[0].link_ns = 40'001;
  example.trace.records[1].core_wait_ns = 3'002;
  for (int i = 0; i < 4; ++i) {
    Record next = example.trace.records[static_cast<std::size_t>(i)];
    next.step = 1;
    for (std::int64_t* time : {&next.issued_ns, &next.begin_ns, &next.end_ns, &next.peers_arrived_ns}) {
      if (*time != 0) *time += 400'003;
    }
    example.trace.records.push_back(next);
  }
  example.trace.steps.push_back({1'400'003, 1'700'003, 1'700'003});
  for (const char* name : {"/rank_1.json", "/rank_1.json.gz"}) {
    const TemporaryFolder folder;
    write_rank_trace(folder.path().string() + name, example.trace, example.facts, example.time, example.label());
    const RankTrace read = read_rank_trace(folder.path().string() + name);
    EXPECT_EQ(read.rank, 1);
    ASSERT_EQ(read.steps.size(), 2U);
    ASSERT_EQ(read.records.size(), example.trace.records.size());
    for (std::size_t s = 0; s < 2; ++s) {
      EXPECT_EQ(read.steps[s].begin_ns + kShift, example.trace.steps[s].begin_ns);
      EXPECT_EQ(read.steps[s].end_ns + kShift, example.trace.steps[s].end_ns);
      EXPECT_EQ(read.steps[s].issued_ns + kShift, example.trace.steps[s].issued_ns);
    }
    for (std::size_t i = 0; i < read.records.size(); ++i) {
      const Record &is = read.records[i], &was = example.trace.records[i];
      const auto shifted = [](std::int64_t ns) { return ns == 0 ? 0 : ns + kShift; };
      EXPECT_EQ(is.step, was.step);
      EXPECT_EQ(is.op, was.op);
      EXPECT_EQ(shifted(is.issued_ns), was.issued_ns) << i;
      EXPECT_EQ(shifted(is.begin_ns), was.begin_ns) << i;
      EXPECT_EQ(shifted(is.end_ns), was.end_ns) << i;
      EXPECT_EQ(shifted(is.peers_arrived_ns), was.peers_arrived_ns) << i;
      EXPECT_EQ(is.link_ns, was.link_ns) << i;
      EXPECT_EQ(is.core_wait_ns, was.core_wait_ns) << i;
    }
  }
}

TEST(RankReader, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "rank_0.json";
  write(path, R"({"traceEvents":[]})");
  EXPECT_THAT(message_of(path), AllOf(HasSubstr(path), HasSubstr("is no trace of one rank")));
  write(path, "no JSON");
  EXPECT_THAT(message_of(path), HasSubstr(path));
  const Example example;
  write_rank_trace(path, example.trace, example.facts, example.time, example.label());
  const std::string whole = read_text(path);
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    write(path, text);
    return message_of(path);
  };
  EXPECT_THAT(damaged("\"op\":0", "\"op\":7"), HasSubstr("an op out of order"));
  EXPECT_THAT(damaged("\"dur\":20.000", "\"dur\":\"long\""), HasSubstr("dur is missing, or is no number"));
  EXPECT_THAT(damaged("\"ts\":10.000", "\"at\":10.000"), HasSubstr("ts is missing"));
  EXPECT_NE(damaged("]}\n", ""), "");
}

}  // namespace
}  // namespace fsdpbench::trace
