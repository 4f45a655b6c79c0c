// A rank that is late in each step is named, with what makes it late; in jobs whose ranks are alike none is.
#include "foreign/link_rows.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {
namespace {

constexpr std::int64_t kMs = 1'000'000;

std::vector<std::vector<OwnTime>> alike(std::size_t ranks, std::size_t steps) {
  return {ranks, std::vector<OwnTime>(steps, OwnTime{80 * kMs, 10 * kMs, 0, 0, 10 * kMs})};
}

TEST(LateRank, IsNamedWithWhatMakesItLate) {
  const std::vector<std::pair<std::int64_t OwnTime::*, OwnPart>> kParts{
      {&OwnTime::kernels, OwnPart::kernels},
      {&OwnTime::host, OwnPart::host},
      {&OwnTime::garbage, OwnPart::garbage},
      {&OwnTime::input, OwnPart::input},
      {&OwnTime::communication, OwnPart::communication}};
  for (const auto& [part, named] : kParts) {
    auto own = alike(4, 3);
    for (OwnTime& step : own[2]) step.*part += 20 * kMs;
    const auto late = find_late_rank(own, 100);
    ASSERT_TRUE(late);
    EXPECT_EQ(late->place, 2);
    EXPECT_EQ(late->where, named);
    EXPECT_DOUBLE_EQ(late->late_ms.median, 20);
    EXPECT_DOUBLE_EQ(late->where_ms, 20);
  }
}

TEST(LateRank, IsNobodyWhereItIsNotSoInEachStep) {
  auto own = alike(2, 3);
  own[1][0].host += 20 * kMs;
  own[0][1].host += 20 * kMs;
  EXPECT_FALSE(find_late_rank(own, 100));
  EXPECT_FALSE(find_late_rank(alike(2, 3), 100));
  EXPECT_FALSE(find_late_rank(alike(1, 3), 100));
  EXPECT_FALSE(find_late_rank({}, 0));
}

TEST(LateRank, WhoIsBlamedIsNamedIfItIsLateForCertain) {
  auto own = alike(2, 6);
  for (int step = 0; step < 6; ++step) own[0][step].host += (step % 2 == 0 ? 20 : -5) * kMs;
  EXPECT_FALSE(find_late_rank(own, 100, 0)) << "late in every other step, and early in the rest";
  own = alike(2, 6);
  for (int step = 0; step < 6; ++step) own[0][step].host += (step % 2 == 0 ? 12 : 2) * kMs;
  EXPECT_FALSE(find_late_rank(own, 100)) << "its interval goes below 5 % of the step";
  EXPECT_TRUE(find_late_rank(own, 100, 0));
}

TEST(LateRank, OfFewStepsItIsMoreThanWhatTheyDifferBy) {
  const auto by_ms = [](const std::vector<int>& ms) {
    auto own = alike(2, ms.size());
    for (std::size_t step = 0; step < ms.size(); ++step) own[1][step].host += ms[step] * kMs;
    return find_late_rank(own, 100);
  };
  EXPECT_TRUE(by_ms({20, 25, 22}));
  EXPECT_FALSE(by_ms({18, 24, 37})) << "the mean of such steps may be nothing: 26 of 25";
  EXPECT_FALSE(by_ms({20, 30}));
  EXPECT_TRUE(by_ms({20, 20}));
}

TEST(LateRank, OneStepTakesTwiceAsMuch) {
  auto own = alike(2, 1);
  own[1][0].host += 8 * kMs;
  EXPECT_FALSE(find_late_rank(own, 100));
  own[1][0].host += 4 * kMs;
  EXPECT_TRUE(find_late_rank(own, 100));
}

/// Real jobs (tests/peer/pairs.py), in some of which the last rank sleeps.
TEST(LateRank, OfRealJobsIsTheOneThatSleeps) {
  namespace fs = std::filesystem;
  int sleepers = 0, others = 0, accused = 0;
  for (const auto& entry : fs::directory_iterator(FSDPBENCH_RECORDED_DIR)) {
    if (!entry.path().filename().string().starts_with("pairs-")) continue;
    for (const auto& pair : fs::directory_iterator(entry)) {
      std::ifstream file(pair.path() / "pair.json");
      const nlohmann::json truth = nlohmann::json::parse(file);
      for (const char* side : {"a", "b"}) {
        const JobTrace job = read_job({(pair.path() / side).string()});
        const Explanation explained = explain(job, recognise(job));
        if (truth["sleeps"].get<double>() == 0) {
          ++others;
          accused += explained.late.has_value();
          if (explained.late) {
            EXPECT_GT(explained.late->late_ms.ci_low, 0) << pair.path() << side;
          }
          continue;
        }
        ++sleepers;
        ASSERT_TRUE(explained.late) << pair.path() << side;
        EXPECT_EQ(job.ranks[explained.late->place].rank, truth["ranks"].get<int>() - 1);
        EXPECT_EQ(explained.late->where, OwnPart::host);
        // The machine did other things meanwhile, too.
        EXPECT_GT(explained.late->late_ms.median, truth["sleeps"].get<double>() * 1e3 * 0.7);
      }
    }
  }
  EXPECT_EQ(sleepers, 4);
  EXPECT_EQ(others, 24);
  EXPECT_LE(accused, 2) << "both by over 10 % of the step: the machine was busy";
}

}  // namespace
}  // namespace fsdpbench::foreign
