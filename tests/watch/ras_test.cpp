#include "foreign/watch/ras.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "foreign/watch/judge.h"

namespace fsdpbench::watch {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::int64_t at_ns(double s) { return static_cast<std::int64_t>((1.7e9 + s) * 1e9); }

json rank_of(int rank, std::int64_t count, int process) {
  return {{"rank", rank},
          {"host", "10.0.0.2"},
          {"pid", 4700 + process},
          {"cuda_dev", 0},
          {"nvml_dev", process},
          {"status",
           {{"init_state", 0},
            {"async_error", 0},
            {"finalize_called", false},
            {"destroy_flag", false},
            {"abort_flag", false}}},
          {"collective_counts",
           {{"Broadcast", 0}, {"Reduce", 0}, {"AllGather", count}, {"ReduceScatter", 2}, {"AllReduce", 0}}}};
}

/// One communicator of four ranks as NCCL writes it; a negative count: the rank is missing.
json communicator_of(const std::string& hash, const std::vector<std::int64_t>& counts,
                     std::vector<int> processes = {0, 1, 2, 3}) {
  json out{{"hash", hash}, {"secondary_hash", "0x1:0x2"}, {"size", counts.size()}};
  out["ranks"] = json::array();
  out["missing_ranks"] = json::array();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    json rank = rank_of(static_cast<int>(i), counts[i], processes[i]);
    if (counts[i] >= 0) {
      out["ranks"].push_back(rank);
      continue;
    }
    rank.erase("collective_counts");
    rank["status"] = {{"unresponsive", true}, {"considered_dead", false}};
    out["missing_ranks"].push_back(rank);
  }
  return out;
}

json answer_of(const json& communicators) {
  return {{"nccl_version", "2.29.1"},
          {"timestamp", "2025-12-19 13:06:53"},
          {"communicators_count", communicators.size()},
          {"communicators", communicators},
          {"ras", {{"collection_time_sec", 0.01}, {"timeouts_count", 0}}}};
}

/// A look each second at what `counts` says of a communicator.
JobView looked(int seconds, const std::function<json(int)>& communicators) {
  JobView job;
  for (int s = 0; s <= seconds; ++s) EXPECT_EQ(add_ras_answer(job, answer_of(communicators(s)), at_ns(s)), "");
  return job;
}

TEST(RasTest, AnAnswerIsAllCommunicatorsOfAJob) {
  JobView job = looked(1, [](int s) { return json::array({communicator_of("0xa", {5 + s, 4, -1, 5})}); });
  const Communicator& communicator = job.communicators.at("NCCL RAS/0xa/0x1:0x2");
  EXPECT_EQ(communicator.size, 4);
  EXPECT_EQ(communicator.looks, 2);
  EXPECT_EQ(communicator.members.at(0).handed.count, 8);
  EXPECT_EQ(communicator.members.at(0).handed.moved_ns, at_ns(1));
  EXPECT_EQ(communicator.members.at(1).handed.moved_ns, at_ns(0));
  EXPECT_EQ(communicator.members.at(2).handed.lost_ns, at_ns(0));
  EXPECT_EQ(communicator.members.at(3).handed.process, "process 4703 on 10.0.0.2, GPU 3");
  // Whatever is no longer in an answer has ended; what came at the same moment tells no order.
  ASSERT_EQ(add_ras_answer(job, answer_of(json::array()), at_ns(1.2)), "");
  EXPECT_EQ(job.communicators.size(), 1U);
  ASSERT_EQ(add_ras_answer(job, answer_of(json::array()), at_ns(2)), "");
  EXPECT_TRUE(job.communicators.empty());
}

TEST(RasTest, TheTimestampIsTheLocalTime) {
  JobView job;
  ASSERT_EQ(::setenv("TZ", "UTC", 1), 0);
  ::tzset();
  ASSERT_EQ(add_ras_answer(job, answer_of(json::array({communicator_of("0xa", {5, 5, 5, 5})})), -1), "");
  EXPECT_EQ(job.counted_ns, 1'766'149'613'000'000'000);
}

TEST(RasTest, EachWrongValueIsRefused) {
  const auto refused = [](const std::function<void(json&)>& damage) {
    json answer = answer_of(json::array({communicator_of("0xa", {5, 5, 5, -1})}));
    damage(answer);
    JobView job;
    return !add_ras_answer(job, answer, -1).empty() && job.communicators.empty();
  };
  EXPECT_FALSE(refused([](json&) {}));
  EXPECT_TRUE(refused([](json& one) { one.erase("nccl_version"); }));
  EXPECT_TRUE(refused([](json& one) { one["timestamp"] = "yesterday"; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"] = 3; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0] = 3; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0].erase("hash"); }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0]["size"] = 1; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0]["ranks"] = nullptr; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0]["ranks"][0] = "x"; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0]["ranks"][0]["rank"] = 4; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0]["ranks"][0]["status"] = 1; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0]["ranks"][0]["collective_counts"]["Reduce"] = -1; }));
  EXPECT_TRUE(refused([](json& one) { one["communicators"][0]["missing_ranks"][0]["rank"] = 1.5; }));
}

TEST(RasTest, NothingIsSaidOfACleanHour) {
  // Two communicators over eight ranks, and one of all that is used once in ten minutes. Hosts run up to 40 collectives
  // ahead, RAS asks its processes in an order over 0.3 s, and all pause for a checkpoint now and then.
  std::mt19937 luck(1);
  double done = 0, rare = 0;
  JobView job;
  for (int s = 0; s < 3600; ++s) {
    const bool pauses = s % 600 < 40 && s > 60;
    const double rate = s % 420 < 20 ? 40 : 90;
    if (!pauses) done += rate;
    if (s % 600 == 100) ++rare;
    json all = json::array();
    for (int group = 0; group < 2; ++group) {
      std::vector<std::int64_t> counts;
      for (int rank = 0; rank < 4; ++rank) {
        const double asked_s = 0.3 * (4 * group + rank) / 8, ahead = static_cast<double>(luck() % 40);
        counts.push_back(static_cast<std::int64_t>(pauses ? done : done + rate * asked_s + ahead));
      }
      all.push_back(communicator_of("0xa" + std::to_string(group), counts,
                                    {4 * group, 4 * group + 1, 4 * group + 2, 4 * group + 3}));
    }
    const auto few = static_cast<std::int64_t>(rare);
    all.push_back(communicator_of("0xb", {few, few, few, few}));
    ASSERT_EQ(add_ras_answer(job, answer_of(all), at_ns(s)), "");
    const Judgement judged = judge(job, at_ns(s));
    ASSERT_THAT(judged.all, IsEmpty()) << s << ": " << judged.sentence;
    ASSERT_EQ(judged.verdict, Verdict::unknown);  // handed over is not ended
  }
  EXPECT_THAT(judge(job, at_ns(3600)).sentence, HasSubstr("have handed over, not those that have ended"));
}

TEST(RasTest, ARankThatIsBehindForAsLongAsTheHangIsLate) {
  const auto at = [](int seconds) {
    return judge(
        looked(
            seconds,
            [](int s) {
              const std::int64_t done = 100 * s;
              return json::array({communicator_of("0xa", {done, done, std::max<std::int64_t>(0, done - 150), done})});
            }),
        at_ns(seconds));
  };
  EXPECT_THAT(at(11).all, IsEmpty());
  const Judgement judged = at(16);
  ASSERT_EQ(judged.verdict, Verdict::late_rank) << judged.sentence;
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(2));
  EXPECT_THAT(judged.sentence, HasSubstr("Rank 2 (process 4702 on 10.0.0.2, GPU 2) of 0xa is late: at each of"));
  // Behind by less than from one look to the next may be the order in which RAS asks.
  EXPECT_THAT(
      judge(
          looked(
              60,
              [](int s) {
                const std::int64_t done = 100 * s;
                return json::array({communicator_of("0xa", {done, done, std::max<std::int64_t>(0, done - 90), done})});
              }),
          at_ns(60))
          .all,
      IsEmpty());
}

TEST(RasTest, WhereNothingMovesTheRankBehindHasNotCome) {
  const auto stop = [](int s) { return std::min<std::int64_t>(10 * s, 200); };
  const auto one = [&](int s) {
    return json::array({communicator_of("0xa", {stop(s), stop(s), stop(s) - (s > 20), stop(s)})});
  };
  EXPECT_THAT(judge(looked(31, one), at_ns(31)).all, IsEmpty());
  const Judgement judged = judge(looked(34, one), at_ns(34));
  ASSERT_EQ(judged.verdict, Verdict::hang) << judged.sentence;
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(2));
  EXPECT_THAT(judged.sentence, HasSubstr("GPU 2) has not come: it has handed over 201 collectives of 0xa, "
                                         "ranks 0, 1, 3 have handed over 202, and no count of the job has moved for"));
  // Another communicator in which something moves: it is late, and the job does not hang.
  const auto moves = [&](int s) {
    return json::array({one(s)[0], communicator_of("0xb", {s, s, s, s}, {4, 5, 6, 7})});
  };
  EXPECT_EQ(judge(looked(36, moves), at_ns(36)).verdict, Verdict::late_rank);
  // Process 1 is behind in the second communicator because it waits for process 2 in the first.
  const auto chain = [&](int s) {
    return json::array(
        {one(s)[0], communicator_of("0xb", {stop(s), stop(s), stop(s) - (s > 20), stop(s)}, {4, 5, 1, 6})});
  };
  const Judgement chained = judge(looked(40, chain), at_ns(40));
  EXPECT_THAT(chained.all.at(0).ranks, ElementsAre(2));
  EXPECT_EQ(chained.all.at(0).communicator, "0xa");
  EXPECT_THAT(chained.all.at(1).ranks, IsEmpty());
  // One look is enough for who knows that the job goes on no more.
  EXPECT_EQ(judge(looked(0, [&](int) { return one(40); }), at_ns(0)).verdict, Verdict::unknown);
  EXPECT_EQ(judge(looked(0, [&](int) { return one(40); }), at_ns(0), {.stopped = true}).verdict, Verdict::hang);
}

TEST(RasTest, EqualCountsThatDoNotMoveAreUnknown) {
  const Judgement judged = judge(looked(60,
                                        [](int) {
                                          return json::array({communicator_of("0xa", {7, 7, 7, 7})});
                                        }),
                                 at_ns(60));
  EXPECT_EQ(judged.verdict, Verdict::unknown);
  EXPECT_THAT(judged.sentence, HasSubstr("It may pause, hang inside a collective, or replay CUDA graphs"));
}

TEST(RasTest, AProcessThatIsNotReachedIsSilent) {
  const auto gone = [](int s) {
    return json::array({communicator_of("0xa", {9 * s, 9 * s, 9 * s, s < 5 ? 9 * s : -1})});
  };
  EXPECT_THAT(judge(looked(15, gone), at_ns(15)).all, IsEmpty());
  const Judgement judged = judge(looked(18, gone), at_ns(18));
  EXPECT_EQ(judged.verdict, Verdict::silent) << judged.sentence;
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(3));
  EXPECT_THAT(judged.sentence, HasSubstr("GPU 3) of 0xa is silent: NCCL RAS has not reached it for 13 s"));
  json dead = gone(6);
  dead[0]["missing_ranks"][0]["status"]["considered_dead"] = true;
  EXPECT_THAT(judge(looked(0, [&](int) { return dead; }), at_ns(0)).sentence, HasSubstr("considers its process dead"));
}

TEST(RasTest, WhoEndsItsCommunicatorIsNotAccused) {
  const auto ends = [](int s) {
    json one = communicator_of("0xa", {200, s < 8 ? 199 : -1, 200, 200});
    if (s >= 4) one["ranks"][0]["status"]["destroy_flag"] = true;
    return json::array({one});
  };
  EXPECT_THAT(judge(looked(60, ends), at_ns(60)).all, IsEmpty());
  const auto starts = [](int) {
    json one = communicator_of("0xa", {3, 0, 3, 3});
    one["ranks"][1]["status"]["init_state"] = 7;
    return json::array({one});
  };
  EXPECT_THAT(judge(looked(60, starts), at_ns(60)).all, IsEmpty());
}

TEST(RasTest, AnErrorIsNoted) {
  json one = communicator_of("0xa", {3, 3, 3, 3});
  one["ranks"][1]["status"]["async_error"] = 6;
  EXPECT_THAT(judge(looked(0, [&](int) { return json::array({one}); }), at_ns(0)).notes,
              ::testing::Contains(HasSubstr("GPU 1) of 0xa reports NCCL's error 6.")));
}

}  // namespace
}  // namespace fsdpbench::watch
