// The critical path of a traced step, across ranks.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "account/critical_path.h"
#include "foreign/explain.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "foreign/recorded_jobs.h"

namespace fsdpbench::foreign {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kPathMs = 1'000'000;

/// Both ranks compute, gather until 150 and compute until 200; the second one computes until 100, the first until 40.
JobTrace late_second_rank(std::int64_t late_begin = 100) {
  JobTrace job;
  job.shared_clock = true;
  for (int r = 0; r < 2; ++r) {
    RankRows rank;
    rank.rank = r;
    rank.names = {"gemm", "ncclDevKernel_AllGather"};
    rank.streams.resize(2);
    rank.groups = {{"0", "default_pg", 2, {0, 1}}};
    rank.collectives.push_back({Communication::all_gather, 512, 1024, "Float", 0, 0});
    const auto add = [&](std::int64_t begin, std::int64_t end, std::int32_t name) {
      DeviceRow row{begin * kPathMs, end * kPathMs};
      row.name = row.stream = name;
      if (name == 1) row.collective = 0;
      row.kind = name == 1 ? Activity::collective : Activity::computation;
      rank.device.push_back(row);
    };
    add(0, r == 1 ? 100 : 40, 0);
    add(r == 1 ? late_begin : 40, 150, 1);
    add(150, 200, 0);
    job.ranks.push_back(rank);
  }
  return job;
}

std::vector<std::string> path_words(const Explanation& explained) {
  std::vector<std::string> all;
  for (const account::PathPart& part : explained.median_path.parts) {
    all.push_back("rank " + std::to_string(part.place) + " " + std::string(to_string(part.kind)) + " " +
                  std::to_string((part.time.end - part.time.begin) / kPathMs));
  }
  return all;
}

TEST(JobPath, GoesToTheRankThatArrivesLast) {
  const JobTrace job = late_second_rank();
  EXPECT_THAT(path_words(explain(job, recognise(job))),
              ElementsAre("rank 1 kernels 100", "rank 0 collectives 50", "rank 0 kernels 50"));
}

/// It began 20 ms after all that is in the trace, and no launch says why.
TEST(JobPath, DoesNotGuessWithoutLaunches) {
  const JobTrace job = late_second_rank(120);
  EXPECT_THAT(path_words(explain(job, recognise(job))),
              ElementsAre("rank 1 unknown 120", "rank 0 collectives 30", "rank 0 kernels 50"));
}

TEST(JobPath, WaitsForARankWhoseFileIsMissingAreNotGuessed) {
  JobTrace job = late_second_rank();
  job.ranks.pop_back();
  EXPECT_THAT(path_words(explain(job, recognise(job))),
              ElementsAre("rank 0 kernels 40", "rank 0 collectives 110", "rank 0 kernels 50"));
}

/// Recorded jobs of PyTorch: exactly the slowest rank's steps.
TEST(JobPath, IsTheStepToTheNanosecond) {
  for (const auto& folder : recorded_jobs()) {
    SCOPED_TRACE(folder.string());
    const JobTrace job = read_job({folder.string()});
    const Explanation explained = explain(job, recognise(job));
    std::int64_t path = 0, steps = 0;
    for (const account::PathOfRank& rank : explained.path) path += rank.all();
    for (const double ms : explained.steps_ms) steps += std::llround(ms * 1e6);
    EXPECT_EQ(path, steps);
    EXPECT_GT(path, 0);
    std::int64_t at = explained.median_path.step.begin;
    for (const account::PathPart& part : explained.median_path.parts) {
      EXPECT_EQ(part.time.begin, at);
      at = part.time.end;
    }
    EXPECT_EQ(at, explained.median_path.step.end);
  }
}

}  // namespace
}  // namespace fsdpbench::foreign
