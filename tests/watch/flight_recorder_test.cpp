#include "foreign/watch/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "foreign/watch/judge.h"

namespace fsdpbench::watch {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kStart_ns = 1'795'624'223'000'000'000;
constexpr std::int64_t kTenth_ns = 100'000'000;

/// Entry as FlightRecorderDetail.hpp has it: NCCL's with states, gloo's without.
json entry(int sequence, const std::string& name, const std::string& state, std::int64_t came_ns) {
  return {{"record_id", sequence},
          {"pg_id", 0},
          {"process_group", {"0", "default_pg"}},
          {"collective_seq_id", sequence},
          {"p2p_seq_id", 0},
          {"op_id", sequence},
          {"profiling_name", name},
          {"time_created_ns", came_ns},
          {"input_sizes", {{1000}}},
          {"input_dtypes", {"Float"}},
          {"output_sizes", {{1000}}},
          {"output_dtypes", {"Float"}},
          {"state", state},
          {"retired", state == "completed"},
          {"is_p2p", false},
          {"timeout_ms", 600000},
          {"time_discovered_started_ns", 0},
          {"time_discovered_completed_ns", 0}};
}

json dump_of(std::vector<json> entries) {
  return {{"version", "2.10"},
          {"pg_config", {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", "[0, 1, 2, 3]"}}}}},
          {"pg_status", json::object()},
          {"entries", std::move(entries)}};
}

std::string add(JobView& job, json dump, int rank, std::int64_t seen_ns = -1) {
  return add_flight_record(job, dump, {"trace_" + std::to_string(rank), seen_ns});
}

TEST(FlightRecorderTest, ATimeoutOfNcclNamesTheRankThatDidNotCome) {
  JobView job;
  for (const int rank : {0, 1, 2, 3}) {
    std::vector<json> entries;
    for (int sequence = 1; sequence <= 5; ++sequence) {
      entries.push_back(entry(sequence, "nccl:_all_gather_base", "completed", kStart_ns + sequence * kTenth_ns));
    }
    if (rank != 3) {
      entries.push_back(entry(6, "nccl:_reduce_scatter_base", "started", kStart_ns + 6 * kTenth_ns));
      entries.back()["retired"] = true;
    }
    ASSERT_EQ(add(job, dump_of(entries), rank), "");
  }
  const Judgement judged = judge(job, job.newest_ns());
  EXPECT_EQ(judged.verdict, Verdict::hang) << judged.sentence;
  ASSERT_EQ(judged.all.size(), 1U);
  EXPECT_THAT(judged.all[0].ranks, ElementsAre(3));
  EXPECT_EQ(judged.all[0].sequence, 6);
  EXPECT_THAT(judged.sentence, HasSubstr("ranks 0 to 2 wait in _reduce_scatter_base 6"));
}

TEST(FlightRecorderTest, GloosStateIsNotBelievedButItsList) {
  JobView job;
  json done = entry(1, "gloo:all_reduce", "scheduled", kStart_ns);
  done["retired"] = true;
  for (const int rank : {0, 1, 2, 3}) ASSERT_EQ(add(job, dump_of({done}), rank, kStart_ns + 60'000'000'000), "");
  EXPECT_TRUE(judge(job, job.newest_ns()).all.empty());
}

TEST(FlightRecorderTest, HowLongIsKnownOnlyFromWhoWroteIt) {
  JobView job;
  for (const int rank : {0, 1, 2, 3}) {
    std::vector<json> entries;
    if (rank != 1) entries.push_back(entry(1, "gloo:all_reduce", "scheduled", kStart_ns));
    ASSERT_EQ(add(job, dump_of(entries), rank), "");
  }
  const Judgement judged = judge(job, kStart_ns + 3'600'000'000'000);
  EXPECT_EQ(judged.verdict, Verdict::unknown);
  EXPECT_THAT(judged.sentence, HasSubstr("to which rank 1 has not come; the dumps do not tell for how long"));
  const Judgement stopped = judge(job, kStart_ns, {.stopped = true});
  EXPECT_EQ(stopped.verdict, Verdict::hang);
  EXPECT_THAT(stopped.all.at(0).ranks, ElementsAre(1));
  for (const int rank : {0, 2, 3}) {  // seen again, changed
    ASSERT_EQ(
        add(job, dump_of({entry(1, "gloo:all_reduce", "scheduled", kStart_ns)}), rank, kStart_ns + 11'000'000'000), "");
  }
  EXPECT_TRUE(judge(job, kStart_ns + 11'000'000'000).all.empty());
  ASSERT_EQ(add(job, dump_of({entry(1, "gloo:all_reduce", "scheduled", kStart_ns)}), 0, kStart_ns + 13'000'000'000),
            "");
  EXPECT_THAT(judge(job, kStart_ns + 13'000'000'000).all.at(0).ranks, ElementsAre(1));
}

TEST(FlightRecorderTest, AMismatchNamesTheMinority) {
  JobView job;
  for (const int rank : {0, 1, 2, 3}) {
    json own = entry(7, rank == 2 ? "nccl:_all_gather_base" : "nccl:all_reduce", "started", kStart_ns);
    ASSERT_EQ(add(job, dump_of({own}), rank), "");
  }
  const Judgement judged = judge(job, job.newest_ns());
  EXPECT_EQ(judged.verdict, Verdict::mismatch);
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(2));
  EXPECT_THAT(judged.sentence, HasSubstr("rank 2 calls _all_gather_base"));
  EXPECT_THAT(judged.sentence, HasSubstr("ranks 0, 1, 3 call all_reduce"));
}

TEST(FlightRecorderTest, SizesMustBeEqualOnlyWhereTheyAre) {
  for (const bool differ_legally : {true, false}) {
    JobView job;
    for (const int rank : {0, 1}) {
      json own = entry(1, differ_legally ? "nccl:all_to_all" : "nccl:all_reduce", "completed", kStart_ns);
      own["input_sizes"] = {{1000 + rank}};
      ASSERT_EQ(add(job, dump_of({own}), rank), "");
    }
    EXPECT_EQ(judge(job, job.newest_ns()).verdict, differ_legally ? Verdict::unknown : Verdict::mismatch);
  }
}

TEST(FlightRecorderTest, WhoWaitsElsewhereIsNotTheCulprit) {
  JobView job;
  // Rank 0 waits for rank 1 in group a, and rank 1 for rank 2 in group b, where rank 2 is not.
  const auto in_group = [](const char* group, int sequence, std::int64_t came_ns) {
    json own = entry(sequence, "nccl:all_reduce", "started", came_ns);
    own["process_group"] = {group, "mesh"};
    own["retired"] = true;
    return own;
  };
  const auto with_groups = [&](std::vector<json> entries) {
    json dump = dump_of(std::move(entries));
    dump["pg_config"] = {{"a", {{"ranks", "[0, 1]"}}}, {"b", {{"ranks", "[1, 2]"}}}};
    return dump;
  };
  ASSERT_EQ(add(job, with_groups({in_group("a", 4, kStart_ns)}), 0), "");
  ASSERT_EQ(add(job, with_groups({in_group("b", 9, kStart_ns)}), 1), "");
  ASSERT_EQ(add(job, with_groups({}), 2), "");
  const Judgement judged = judge(job, job.newest_ns());
  ASSERT_EQ(judged.all.size(), 2U);
  EXPECT_THAT(judged.all[0].ranks, ElementsAre(2));
  EXPECT_TRUE(judged.all[1].ranks.empty()) << judged.all[1].sentence;
}

TEST(FlightRecorderTest, WrongTypesAreNoCrash) {
  const std::vector<std::string> wrong{
      R"({"entries":7,"pg_config":{}})",
      R"({"entries":[7,null,{"profiling_name":[],"collective_seq_id":"x"},{"profiling_name":"nccl:x","collective_seq_id":1,"process_group":5,"input_sizes":[[[1]],"a"],"input_dtypes":[1],"time_created_ns":1e300,"duration_ms":-1}],"pg_config":[]})",
      R"({"entries":[],"pg_config":{"0":{"ranks":[1]}},"pg_status":null})",
      R"({"fsdpbench":5,"dumps":{}})",
      R"({"fsdpbench":{"rank":-1,"written_ns":"x"},"dumps":[1,[],{}]})",
      R"({"pg_config":null})"};
  for (const std::string& text : wrong) {
    JobView job;
    (void)add_flight_record(job, json::parse(text), {"dump_0", -1});
    (void)judge(job, job.newest_ns());
  }
  JobView job;
  EXPECT_NE(add_flight_record(job, json::parse(R"({"entries":7})"), {"dump_0", -1}), "");
  EXPECT_THAT(add_flight_record(job, dump_of({}), {"dump", -1}), HasSubstr("does not tell its rank"));
  EXPECT_THAT(add_flight_record(job, json::parse("{}"), {"dump_0", -1}), HasSubstr("no dump"));
}

TEST(FlightRecorderTest, RanksAreAtTheEndOfNames) {
  EXPECT_EQ(rank_at_end("/tmp/nccl_trace_rank_12"), 12);
  EXPECT_EQ(rank_at_end("x3/flight_7.json"), 7);
  EXPECT_EQ(rank_at_end("7/flight"), std::nullopt);
  EXPECT_EQ(rank_at_end("r99999999999999999999"), std::nullopt);
}

}  // namespace
}  // namespace fsdpbench::watch
