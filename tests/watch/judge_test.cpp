#include "foreign/watch/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace fsdpbench::watch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kClean = "No rank is late, no communicator is slow and nothing hangs.";
constexpr double kStart_s = 1.7e9;
constexpr int kRanks = 4;
constexpr int kCollectives = 4;  // per step

std::int64_t ns(double s) { return static_cast<std::int64_t>(s * 1e9); }

enum class Source { gloo, inspector, steps };

/// A healthy job: ranks compute and wait for the last one, four times a step. Times have heavy tails; the first steps
/// are long, each ten minutes all ranks pause to save a checkpoint, each seven minutes all compute twice as long for a
/// while, and each three minutes one rank is held up for up to 3 s.
class Job {
 public:
  explicit Job(Source source, unsigned seed = 1) : source_(source), luck_(seed) {
    for (double& offset : clock_) offset = source == Source::gloo ? luck(0.02) : 0;
  }

  std::function<double(int rank, double time_s)> slower = [](int, double) { return 1.0; };
  std::function<double(double time_s)> transfer = [](double) { return 1.0; };
  std::string name = "c0";

  /// One step; `look` is called each fifteen seconds, in the middle of a collective.
  void step(JobView& job, const std::function<void(double)>& look) {
    ++number_;
    const double begin_s = now_s_;
    std::vector<double> waits(kRanks, 0.0);
    if (std::fmod(now_s_, 600) < 0.5 && now_s_ > 60) now_s_ += 40;
    for (int place = 0; place < kCollectives; ++place) {
      ++sequence_;
      std::vector<double> came;
      for (int rank = 0; rank < kRanks; ++rank) came.push_back(now_s_ + compute(rank));
      const double last_s = std::ranges::max(came), took_s = 0.01 * transfer(now_s_) * jitter();
      if (now_s_ >= next_look_s_) {
        next_look_s_ = now_s_ + 15;
        const double at_s = (*std::ranges::min_element(came) + last_s) / 2;
        if (source_ == Source::gloo) tell(job, came, last_s, took_s, at_s);
        look(at_s);
      }
      tell(job, came, last_s, took_s, last_s + took_s);
      for (int rank = 0; rank < kRanks; ++rank)
        waits[static_cast<std::size_t>(rank)] += last_s + took_s - came[static_cast<std::size_t>(rank)];
      now_s_ = last_s + took_s;
    }
    if (source_ != Source::steps) return;
    job.world = kRanks;
    for (int rank = 0; rank < kRanks; ++rank) {
      RankView& view = job.ranks[rank];
      view.heard.add(ns(kStart_s + now_s_));
      add_step(view,
               {number_, ns(kStart_s + now_s_), 1e3 * (now_s_ - begin_s), 1e3 * waits[static_cast<std::size_t>(rank)]});
    }
  }
  double now_s() const { return now_s_; }

 private:
  double luck(double most) { return std::uniform_real_distribution<double>(-most, most)(luck_); }
  double jitter() {
    const double usual = std::lognormal_distribution<double>(0, 0.1)(luck_);
    return std::uniform_real_distribution<double>(0, 1)(luck_) < 0.01 ? 8 * usual : usual;
  }
  double compute(int rank) {
    double s = 0.05 * jitter() * slower(rank, now_s_);
    if (number_ <= 10) s *= 5;
    if (std::fmod(now_s_, 420) < 20) s *= 2;
    if (std::fmod(now_s_, 180) < 3 && static_cast<int>(now_s_ / 180) % kRanks == rank) s *= 1.8;
    return s;
  }
  /// What its source tells as of `at_s`.
  void tell(JobView& job, const std::vector<double>& came, double last_s, double took_s, double at_s) {
    if (source_ == Source::steps) return;
    Communicator& communicator = job.communicators[name];
    communicator.name = name;
    communicator.size = kRanks;
    communicator.lateness = source_ == Source::gloo ? Lateness::arrivals : Lateness::waits;
    communicator.tells_pending = source_ == Source::gloo;
    for (int rank = 0; rank < kRanks; ++rank) {
      const double own_s = came[static_cast<std::size_t>(rank)];
      if (source_ == Source::gloo) job.ranks[rank].heard.add(ns(kStart_s + at_s));
      Member& member = communicator.members[rank];
      member.heard.add(ns(kStart_s + at_s));
      if (own_s > at_s) continue;
      Operation one{.sequence = sequence_, .name = "all_reduce", .bytes = 1 << 20};
      one.done = at_s >= last_s + took_s;
      if (source_ == Source::gloo)
        one.came_ns = ns(kStart_s + own_s + clock_[static_cast<std::size_t>(rank)]);
      else
        one.took_ns = ns(last_s + took_s - own_s);
      one.told_ns = source_ == Source::gloo ? one.came_ns : ns(kStart_s + at_s);
      add_operation(member, one);
    }
  }

  Source source_;
  std::mt19937 luck_;
  double clock_[kRanks]{};
  double now_s_ = 0, next_look_s_ = 5;
  std::int64_t sequence_ = 0, number_ = 0;
};

class HourTest : public ::testing::TestWithParam<Source> {};

/// A third of it has each of its pauses at least twice.
TEST_P(HourTest, NothingIsSaidOfACleanHour) {
  Job source(GetParam());
  JobView job;
  int looks = 0, clean = 0;
  while (source.now_s() < 1200) {
    source.step(job, [&](double at_s) {
      const Judgement judged = judge(job, ns(kStart_s + at_s));
      EXPECT_TRUE(judged.all.empty()) << at_s << " s: " << judged.sentence;
      ++looks;
      clean += judged.verdict == Verdict::clean ? 1 : 0;
    });
  }
  EXPECT_GT(looks, 65);
  EXPECT_GT(clean, 9 * looks / 10);  // and it is not that nothing could be judged
}

TEST_P(HourTest, ALateRankIsNamedWithin15Seconds) {
  // From 300 s on rank 2 takes 60 % longer; before the first collective of a step only where clocks are not shared.
  Job source(GetParam(), 2);
  JobView job;
  int place = 0;
  source.slower = [&](int rank, double time_s) {
    const bool counts = GetParam() != Source::gloo || place++ % (kCollectives * kRanks) < kRanks;
    return rank == 2 && time_s > 300 && counts ? (GetParam() == Source::gloo ? 3.0 : 1.6) : 1.0;
  };
  while (source.now_s() < 316) source.step(job, [](double) {});
  const Judgement judged = judge(job, ns(kStart_s + source.now_s()));
  EXPECT_EQ(judged.verdict, Verdict::late_rank) << judged.sentence;
  ASSERT_EQ(judged.all.size(), 1U);
  EXPECT_THAT(judged.all[0].ranks, ElementsAre(2));
  EXPECT_GT(judged.all[0].share_low, kLeastShare);
  EXPECT_THAT(judged.sentence, HasSubstr("Rank 2"));
  // Half a minute after it has recovered, nothing is said any more.
  source.slower = [](int, double) { return 1.0; };
  while (source.now_s() < 350) source.step(job, [](double) {});
  EXPECT_EQ(judge(job, ns(kStart_s + source.now_s())).sentence, kClean);
}

TEST_P(HourTest, ALittleLateIsNotLate) {
  Job source(GetParam(), 3);
  source.slower = [](int rank, double) { return rank == 2 ? 1.05 : 1.0; };
  JobView job;
  while (source.now_s() < 300)
    source.step(job, [&](double at_s) { EXPECT_TRUE(judge(job, ns(kStart_s + at_s)).all.empty()); });
}

INSTANTIATE_TEST_SUITE_P(Watch, HourTest, ::testing::Values(Source::gloo, Source::inspector, Source::steps),
                         [](const auto& one) {
                           return one.param == Source::gloo        ? "gloo"
                                  : one.param == Source::inspector ? "inspector"
                                                                   : "steps";
                         });

TEST(JudgeTest, AClockThatIsAheadIsNoLateRank) {
  Job source(Source::gloo, 4);
  JobView job;
  while (source.now_s() < 30) source.step(job, [](double) {});
  for (Operation& one : job.communicators.at("c0").members.at(1).operations) one.came_ns += ns(0.5);
  EXPECT_EQ(judge(job, ns(kStart_s + source.now_s())).sentence, kClean);
}

TEST(JudgeTest, ASlowCommunicatorIsNamedAmongItsSiblings) {
  JobView job;
  std::vector<Job> sources;
  for (int i = 0; i < 5; ++i) {
    sources.emplace_back(Source::inspector, 10 + i);
    sources.back().name = "c" + std::to_string(i);
  }
  const auto run_until = [&](double until_s) {
    for (Job& one : sources) {
      while (one.now_s() < until_s) one.step(job, [](double) {});
    }
  };
  run_until(300);
  EXPECT_TRUE(judge(job, ns(kStart_s + 300)).all.empty());
  sources[3].transfer = [](double) { return 1.6; };
  run_until(316);
  const Judgement judged = judge(job, ns(kStart_s + 316));
  EXPECT_EQ(judged.verdict, Verdict::slow_communicator) << judged.sentence;
  ASSERT_EQ(judged.all.size(), 1U);
  EXPECT_EQ(judged.all[0].communicator, "c3");
}

/// A job of gloo in which `stopped` is stopped at 100 s, as its own threads are; the others write each second.
Judgement after_stop(double seconds, bool inside) {
  Job source(Source::gloo, 5);
  JobView job;
  while (source.now_s() < 100) source.step(job, [](double) {});
  const double stop_s = source.now_s();
  Communicator& communicator = job.communicators.at("c0");
  const std::int64_t sequence = communicator.members.at(0).operations.back().sequence + 1;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == 2 && !inside) continue;
    add_operation(communicator.members.at(rank), {.sequence = sequence,
                                                  .name = "all_reduce",
                                                  .came_ns = ns(kStart_s + stop_s),
                                                  .told_ns = ns(kStart_s + stop_s),
                                                  .done = false});
  }
  for (double at_s = stop_s; at_s <= stop_s + seconds; at_s += 1) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == 2) continue;
      job.ranks[rank].heard.add(ns(kStart_s + at_s));
      communicator.members.at(rank).heard.add(ns(kStart_s + at_s));
    }
  }
  return judge(job, ns(kStart_s + stop_s + seconds));
}

TEST(JudgeTest, AHangNamesWhoDidNotCome) {
  EXPECT_EQ(after_stop(10, false).sentence, kClean);
  const Judgement judged = after_stop(16, false);
  EXPECT_EQ(judged.verdict, Verdict::hang);
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(2));
  EXPECT_THAT(judged.sentence, HasSubstr("Rank 2 has not come: ranks 0, 1, 3 wait in all_reduce"));
  EXPECT_THAT(judged.sentence, HasSubstr("Nothing has been heard of it for 16 s"));
}

TEST(JudgeTest, WhoHasEndedIsNotSilent) {
  JobView job;
  job.world = 2;
  for (double at_s = 0; at_s < 30; at_s += 1) {
    job.ranks[0].heard.add(ns(kStart_s + at_s));
    if (at_s < 3) job.ranks[1].heard.add(ns(kStart_s + at_s));
  }
  EXPECT_EQ(judge(job, ns(kStart_s + 30)).verdict, Verdict::silent);
  job.ranks[1].ended = true;
  EXPECT_TRUE(judge(job, ns(kStart_s + 30)).all.empty());
  job.world = 3;  // one that never wrote
  EXPECT_THAT(judge(job, ns(kStart_s + 30)).all.at(0).ranks, ElementsAre(2));
}

TEST(JudgeTest, WhoStopsInsideACollectiveIsNamedByItsSilence) {
  const Judgement judged = after_stop(16, true);
  EXPECT_EQ(judged.verdict, Verdict::hang);
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(2));
  EXPECT_THAT(judged.sentence, HasSubstr("has stopped inside a collective"));
}

TEST(JudgeTest, WhereAllHaveComeNobodyIsNamed) {
  Job source(Source::gloo, 6);
  JobView job;
  while (source.now_s() < 50) source.step(job, [](double) {});
  Communicator& communicator = job.communicators.at("c0");
  const double stop_s = source.now_s();
  for (int rank = 0; rank < kRanks; ++rank) {
    Member& member = communicator.members.at(rank);
    add_operation(member, {.sequence = member.operations.back().sequence + 1,
                           .name = "all_reduce",
                           .came_ns = ns(kStart_s + stop_s),
                           .told_ns = ns(kStart_s + stop_s),
                           .done = false});
    for (double at_s = stop_s; at_s < stop_s + 20; at_s += 1) {
      job.ranks[rank].heard.add(ns(kStart_s + at_s));
      member.heard.add(ns(kStart_s + at_s));
    }
  }
  const Judgement judged = judge(job, ns(kStart_s + stop_s + 20));
  EXPECT_EQ(judged.verdict, Verdict::hang);
  EXPECT_TRUE(judged.all.at(0).ranks.empty());
  EXPECT_THAT(judged.sentence, HasSubstr("no rank is to blame"));
}

TEST(JudgeTest, AMemberThatWritesNoMoreIsSilentAndNotLate) {
  Job source(Source::inspector, 7);
  JobView job;
  while (source.now_s() < 60) source.step(job, [](double) {});
  const Member kept = job.communicators.at("c0").members.at(1);
  while (source.now_s() < 69) source.step(job, [](double) {});
  job.communicators.at("c0").members.at(1) = kept;
  EXPECT_EQ(judge(job, ns(kStart_s + source.now_s())).sentence, kClean);
  while (source.now_s() < 80) source.step(job, [](double) {});
  job.communicators.at("c0").members.at(1) = kept;
  const Judgement judged = judge(job, ns(kStart_s + source.now_s()));
  EXPECT_EQ(judged.verdict, Verdict::silent) << judged.sentence;
  EXPECT_THAT(judged.all.at(0).ranks, ElementsAre(1));
}

TEST(JudgeTest, AJobThatEndsIsNoAccusation) {
  for (const Source kind : {Source::gloo, Source::inspector, Source::steps}) {
    Job source(kind, 8);
    JobView job;
    while (source.now_s() < 60) source.step(job, [](double) {});
    EXPECT_EQ(judge(job, ns(kStart_s + source.now_s() + 86400)).sentence, kClean);
  }
}

TEST(JudgeTest, NothingAndLittleAreUnknown) {
  EXPECT_EQ(judge({}, 0).verdict, Verdict::unknown);
  Job source(Source::inspector, 9);
  JobView job;
  while (source.now_s() < 2) source.step(job, [](double) {});
  const Judgement judged = judge(job, ns(kStart_s + source.now_s()));
  EXPECT_EQ(judged.verdict, Verdict::unknown);
  EXPECT_THAT(judged.sentence, HasSubstr("fewer than 24"));
}

}  // namespace
}  // namespace fsdpbench::watch
