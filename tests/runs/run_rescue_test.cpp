#include "runs/job_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class RunRescueTest : public ::testing::Test {
 protected:
  RunRescueTest() : setup_(engine::set_up(fsdpbench::testing::settled(fsdpbench::testing::tiny_decoder()))) {}

  RunRescue rescue(int rank) {
    return RunRescue(folder_.path(), json{{"schema_version", 1}, {"train", {{"warmup", 1}}}}, setup_, rank);
  }
  json result() const { return json::parse(std::ifstream(folder_.path() / "result.json")); }
  bool has(const char* name) const { return fs::exists(folder_.path() / name); }

  /// Two steps, the second measured: 3 ms long.
  trace::RankTrace trace_of_a_step() const {
    trace::RankTrace trace;
    trace.steps = {{1'000'000, 4'000'000}};
    const schedule::Schedule& schedule = setup_.schedules.of_step(1);
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const std::int64_t begin = 1'000'000 + static_cast<std::int64_t>(1000 * i);
      const bool work = schedule.ops[i].has_work();
      trace.records.push_back({1, static_cast<std::int32_t>(i), begin, work ? begin : 0, begin + 900, 0});
    }
    return trace;
  }

  engine::Setup setup_;
  TemporaryFolder folder_;
};

const launch::JobFailure kRank2Died{2, true, "rank 2 was killed"};
const launch::JobFailure kRank0Died{0, true, "rank 0 was killed"};

TEST_F(RunRescueTest, Rank0WritesTheResultAndItsTrace) {
  RunRescue rank0 = rescue(0);
  const trace::RankTrace trace = trace_of_a_step();
  rank0.done()->publish(trace, 2);
  EXPECT_THAT(rank0.save(&kRank2Died), ::testing::HasSubstr("the 2 steps that rank 0 had done"));
  const json saved = result();
  EXPECT_EQ(saved["complete"], false);
  EXPECT_EQ(saved["failure"], (json{{"rank", 2}, {"died", true}, {"message", "rank 2 was killed"}}));
  EXPECT_EQ(saved["train"], (json{{"warmup", 1}, {"steps_done", 2}}));
  EXPECT_EQ(saved["steps"]["rank_ms"], json::array({3.0}));
  EXPECT_TRUE(has("trace/rank_0.json.gz"));
  EXPECT_TRUE(has("config.toml"));
}

TEST_F(RunRescueTest, OthersWriteTheirTracesOnly) {
  RunRescue rank1 = rescue(1);
  const trace::RankTrace trace = trace_of_a_step();
  rank1.done()->publish(trace, 2);
  EXPECT_EQ(rank1.save(&kRank2Died), "");
  EXPECT_FALSE(has("result.json"));
  EXPECT_TRUE(has("trace/rank_1.json.gz"));
}

TEST_F(RunRescueTest, ARank0ThatWasGivenUpLeavesTheVerdictThatItFinds) {
  RunRescue rank1 = rescue(1);
  EXPECT_NE(rank1.save(&kRank0Died), "");
  RunRescue rank0 = rescue(0);
  const launch::JobFailure stopped{0, false, "rank 0 was stopped"};
  EXPECT_EQ(rank0.save(&stopped), "");
  EXPECT_EQ(result()["failure"]["message"], "rank 0 was killed");
  EXPECT_EQ(result()["steps"]["rank"], 1);
}

TEST_F(RunRescueTest, WithoutRank0TheFirstOfTheOthersWritesTheResult) {
  RunRescue rank1 = rescue(1);
  RunRescue rank3 = rescue(3);
  EXPECT_NE(rank1.save(&kRank0Died), "");
  EXPECT_EQ(rank3.save(&kRank0Died), "");
  EXPECT_EQ(result()["steps"]["rank"], 1);
}

TEST_F(RunRescueTest, AnInterruptedRunHasNoFailureAndMayBeSavedAgain) {
  RunRescue rank0 = rescue(0);
  EXPECT_NE(rank0.save(nullptr), "");
  EXPECT_FALSE(result().contains("failure"));
  EXPECT_NE(rank0.save(&kRank2Died), "");
  EXPECT_TRUE(result().contains("failure"));
}

TEST_F(RunRescueTest, ARunThatHasEndedWellIsNotTouched) {
  RunRescue rank0 = rescue(0);
  rank0.close();
  EXPECT_EQ(rank0.save(&kRank2Died), "");
  EXPECT_FALSE(has("result.json"));
}

}  // namespace
}  // namespace fsdpbench::app
