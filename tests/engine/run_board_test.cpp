// Both boards: all ranks stop before the same step, and rank 0 gets what all have measured.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "base/error.h"
#include "engine/run_board.h"
#include "launch/run_ranks.h"
#include "support/local_channels.h"

namespace fsdpbench::engine {
namespace {

constexpr int kRanks = 3;
constexpr std::int64_t kSteps = 20;

RankOutcome outcome_of(int rank) {
  RankOutcome outcome;
  outcome.trace.rank = rank;
  outcome.wire_bytes[0] = 100 + rank;
  return outcome;
}

/// One rank's loop of steps on its board; returns the steps done.
std::int64_t walk(RunBoard& board, int rank) {
  std::int64_t step = 0;
  for (; step < kSteps && !board.stops_before(rank, step); ++step) {
    board.report_loss(rank, step, static_cast<float>(10 * step + rank));
    if (rank == 0) board.latest_loss();
  }
  board.bring(rank, step, outcome_of(rank));
  return step;
}

/// The job as processes, each with a board of its own; `stop` is asked on each rank. Returns rank 0's board.
std::unique_ptr<ChannelBoard> walk_processes(testing::LocalChannels& hub,
                                             const std::vector<std::function<bool()>>& stop,
                                             std::vector<std::int64_t>& done) {
  std::vector<std::unique_ptr<launch::ControlChannel>> channels;
  std::vector<std::unique_ptr<ChannelBoard>> boards;
  for (int rank = 0; rank < kRanks; ++rank) {
    channels.push_back(hub.channel(rank));
    boards.push_back(std::make_unique<ChannelBoard>(*channels.back(), kSteps, stop[static_cast<std::size_t>(rank)]));
  }
  done.assign(kRanks, -1);
  launch::run_ranks(kRanks, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    done[index] = walk(*boards[index], rank);
  });
  return std::move(boards.front());
}

void expect_complete(RunBoard& board, std::int64_t steps) {
  const std::vector<double> losses = board.losses(steps);
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(steps));
  for (std::int64_t step = 0; step < steps; ++step) {
    EXPECT_DOUBLE_EQ(losses[static_cast<std::size_t>(step)], static_cast<double>(10 * step + 1));
  }
  const std::vector<RankOutcome> outcomes = board.outcomes();
  ASSERT_EQ(outcomes.size(), static_cast<std::size_t>(kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].wire_bytes[0], 100 + rank);
  }
}

TEST(ThreadBoard, CollectsAll) {
  const std::function<bool()> never;
  ThreadBoard board(kRanks, kSteps, never);
  launch::run_ranks(kRanks, [&](int rank) { EXPECT_EQ(walk(board, rank), kSteps); });
  EXPECT_EQ(board.latest_loss().value().steps, kSteps);
  EXPECT_DOUBLE_EQ(board.latest_loss().value().mean, static_cast<double>(10 * (kSteps - 1) + 1));
  expect_complete(board, kSteps);
}

TEST(ChannelBoard, CollectsAllAtRank0AndLeavesNoMessageForTheNextRun) {
  testing::LocalChannels hub(kRanks);
  const std::vector<std::function<bool()>> never(kRanks);
  for (int run = 0; run < 3; ++run) {
    std::vector<std::int64_t> done;
    const auto board = walk_processes(hub, never, done);
    EXPECT_EQ(done, std::vector<std::int64_t>(kRanks, kSteps));
    EXPECT_EQ(board->steps_done(), kSteps);
    expect_complete(*board, kSteps);
  }
}

TEST(ChannelBoard, AStopOfAnyRankEndsAllAfterTheSameStep) {
  for (const std::size_t stopper : {0U, 2U}) {
    testing::LocalChannels hub(kRanks);
    std::vector<std::function<bool()>> stop(kRanks);
    std::atomic<int> asked = 0;
    stop[stopper] = [&] { return ++asked > 5; };
    std::vector<std::int64_t> done;
    const auto board = walk_processes(hub, stop, done);
    EXPECT_EQ(done, std::vector<std::int64_t>(kRanks, done[0]));
    EXPECT_GE(done[0], 6);  // step 0 to 4 were asked for in vain, and what is decided takes effect a step later
    if (stopper == 0) {
      EXPECT_EQ(done[0], 6);
    }
    if (done[0] < kSteps) expect_complete(*board, done[0]);
  }
}

/// One thread asks for all, the last rank first, so that what rank 2 wants is there when rank 0 decides.
TEST(ChannelBoard, AStopTakesEffectAStepLaterAndIsOver) {
  testing::LocalChannels hub(kRanks);
  bool wanted = false;
  const std::function<bool()> stop = [&] { return wanted; }, never;
  std::vector<std::unique_ptr<launch::ControlChannel>> channels;
  for (int rank = 0; rank < kRanks; ++rank) channels.push_back(hub.channel(rank));
  for (const int stopper : {0, 1, 2, -1}) {
    std::vector<std::unique_ptr<ChannelBoard>> boards;
    for (int rank = 0; rank < kRanks; ++rank) {
      boards.push_back(std::make_unique<ChannelBoard>(*channels[static_cast<std::size_t>(rank)], kSteps,
                                                      rank == stopper ? stop : never));
    }
    std::int64_t step = 0;
    for (bool over = false; step < kSteps; ++step) {
      wanted = step >= 3;
      for (int rank = kRanks; rank-- > 0;) {
        const bool stops = boards[static_cast<std::size_t>(rank)]->stops_before(rank, step);
        EXPECT_TRUE(rank == kRanks - 1 || stops == over);
        over = stops;
      }
      if (over) break;
    }
    EXPECT_EQ(step, stopper < 0 ? kSteps : 4);
  }
}

TEST(ChannelBoard, ToldLossesAreTheLatestThatAllHaveReported) {
  testing::LocalChannels hub(2);
  const auto root = hub.channel(0), other = hub.channel(1);
  const std::function<bool()> never;
  ChannelBoard mine(*root, kSteps, never), its(*other, kSteps, never);
  mine.report_loss(0, 0, 2);
  EXPECT_FALSE(mine.latest_loss());
  for (const std::int64_t step : {0, 1, 2}) its.report_loss(1, step, 4);
  EXPECT_EQ(mine.latest_loss().value().steps, 1);
  EXPECT_EQ(mine.latest_loss().value().mean, 3);
  mine.report_loss(0, 1, 6);
  EXPECT_EQ(mine.latest_loss().value().steps, 2);
  EXPECT_EQ(mine.latest_loss().value().mean, 5);
  EXPECT_EQ(mine.losses(2), (std::vector<double>{3, 5}));
  EXPECT_EQ(mine.losses(1), (std::vector<double>{3}));
}

TEST(ThreadBoard, TheStepsThatAllHaveDoneAreTheFewestThatAnyHas) {
  const std::function<bool()> never;
  ThreadBoard board(kRanks, kSteps, never);
  board.bring(1, 5, outcome_of(1));
  board.bring(2, 7, outcome_of(2));
  EXPECT_EQ(board.steps_done(), 0) << "one of them has brought nothing";
  board.bring(0, 6, outcome_of(0));
  EXPECT_EQ(board.steps_done(), 5);
}

TEST(ThreadBoard, AllGetTheAnswerOfWhoeverAsksFirst) {
  int asked = 0;
  const std::function<bool()> stop = [&] { return ++asked == 3; };
  ThreadBoard board(kRanks, kSteps, stop);
  for (const std::int64_t step : {0, 1, 2}) {
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(board.stops_before(rank, step), step == 2);
  }
  EXPECT_EQ(asked, 3);
}

TEST(ChannelBoard, AFailureEndsWhoeverWaits) {
  testing::LocalChannels hub(2);
  const auto root = hub.channel(0);
  const auto other = hub.channel(1);
  const std::function<bool()> never;
  ChannelBoard board(*other, kSteps, never);
  EXPECT_FALSE(board.stops_before(1, 0));
  root->fail("rank 0 has no more memory");
  EXPECT_THROW(board.stops_before(1, 1), launch::Stopped);
}

TEST(ChannelBoard, RefusesALossOfAnotherSize) {
  testing::LocalChannels hub(2);
  const auto root = hub.channel(0);
  hub.channel(1)->send(0, "run.loss", "ab");
  const std::function<bool()> never;
  ChannelBoard board(*root, kSteps, never);
  try {
    board.latest_loss();
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_STREQ(error.what(), "rank 1 sent a loss of 2 bytes; it has 4");
  }
}

TEST(ChannelBoard, RefusesTheOutcomeOfAnotherRank) {
  testing::LocalChannels hub(2);
  const auto root = hub.channel(0);
  hub.channel(1)->send(0, "run.outcome", to_bytes(outcome_of(2)));
  const std::function<bool()> never;
  ChannelBoard board(*root, kSteps, never);
  try {
    board.bring(0, 0, outcome_of(0));
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_STREQ(error.what(), "rank 1 sent the outcome of rank 2");
  }
}

}  // namespace
}  // namespace fsdpbench::engine
