// Ends of a run: errors of NCCL, ops that hang, failures elsewhere, and an abort that hangs itself.

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "backend/cuda/nccl_support.h"

namespace fsdpbench::backend::cuda {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class NcclFailureTest : public NcclTest {
 protected:
  static void reduce(NcclRankContext& rank, int times) {
    std::vector<float> values(8, 1);
    for (int i = 0; i < times; ++i) {
      rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 8, DType::f32, 1.0F, nullptr);
    }
    rank.lanes.synchronize();
  }
};

TEST_F(NcclFailureTest, AnAsynchronousErrorEndsAllRanksWithItsWords) {
  fake::nccl::fail_op(1, 3, ncclRemoteError, "the peer at 10.0.0.7 closed its socket");
  // Seen in the wait, or already when one of the later ops is issued.
  EXPECT_THAT(NcclRun{.ranks = 3}.failure([](NcclRankContext& rank) { reduce(rank, 5); }),
              MatchesRegex("rank 1: .* failed, with all_reduce #3 of group world on lane all_reduce unfinished: remote "
                           "process exited or there was a network error: the peer at 10.0.0.7 closed its socket"));
  EXPECT_EQ(fake::nccl::counts().aborted, 3);
}

TEST_F(NcclFailureTest, EveryRankHearsTheFirstFailure) {
  fake::nccl::fail_op(0, 1, ncclSystemError, "no route");
  std::atomic<int> heard{0};
  EXPECT_THAT(NcclRun{.ranks = 4}.failure([&](NcclRankContext& rank) {
    rank.world.barrier();
    try {
      reduce(rank, 1);
    } catch (const BackendError& e) {
      if (std::string(e.what()).find("no route") != std::string::npos) ++heard;
      throw;
    }
  }),
              HasSubstr("no route"));
  EXPECT_EQ(heard.load(), 4);
}

TEST_F(NcclFailureTest, AnOpThatHangsIsNamedWithItsNumberGroupLaneAndRank) {
  fake::nccl::hang_op(2, 4);
  NcclRun run{.ranks = 3};
  run.deadlines.op = milliseconds(400);
  EXPECT_THAT(run.failure([](NcclRankContext& rank) { reduce(rank, 7); }),
              MatchesRegex("rank .: all_reduce #4 of group world on lane all_reduce has not finished after 0.4 s; this "
                           "rank has issued 7 there"));
  EXPECT_EQ(fake::nccl::counts().aborted, 3);
}

TEST_F(NcclFailureTest, AnOpBehindLongWorkOfItsLaneDoesNotHang) {
  NcclRun run{.ranks = 2};
  run.deadlines.op = milliseconds(400);
  run.run([](NcclRankContext& rank) {
    fake::run_on_stream(rank.lanes.stream(Lane::all_reduce), [] { std::this_thread::sleep_for(milliseconds(900)); });
    reduce(rank, 1);
  });
}

TEST_F(NcclFailureTest, GroupsAreCalledByTheirNames) {
  NcclRun run{.ranks = 2};
  run.deadlines.op = milliseconds(400);
  EXPECT_THAT(run.failure([](NcclRankContext& rank) {
    const auto shard = rank.world.split(0, rank.rank);
    shard->set_name("shard");
    std::vector<float> values(8);
    if (rank.rank == 1) {
      shard->all_gather(Lane::all_gather, bytes_of(values) + 16, bytes_of(values), 4, DType::f32, nullptr);
    }
    rank.lanes.synchronize();
    rank.world.barrier();
  }),
              "rank 1: ncclAllGather of group shard has not finished after 0.4 s, with all_gather #1 of group shard on "
              "lane all_gather unfinished")
      << "the first collective connects, for which all are needed";
  EXPECT_EQ(fake::nccl::counts().aborted, 4);
}

TEST_F(NcclFailureTest, AMissingRankOfASplitsBarrierIsADeadline) {
  NcclRun run{.ranks = 2};
  run.deadlines.op = milliseconds(400);
  EXPECT_THAT(run.failure([](NcclRankContext& rank) {
    const auto part = rank.world.split(0, rank.rank);
    if (rank.rank == 0) part->barrier();
    rank.world.barrier();
  }),
              HasSubstr("all_reduce #1 of group world split 0"));
}

TEST_F(NcclFailureTest, DifferentCollectivesAreNcclsError) {
  EXPECT_THAT(NcclRun{.ranks = 2}.failure([](NcclRankContext& rank) {
    std::vector<float> values(16);
    if (rank.rank == 0) {
      rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 8, DType::f32, 1.0F, nullptr);
    } else {
      rank.world.broadcast(Lane::all_reduce, bytes_of(values), 8, DType::f32, 0, nullptr);
    }
    rank.lanes.synchronize();
  }),
              HasSubstr("the ranks call different collectives"));
}

TEST_F(NcclFailureTest, AFailedInitializationNamesTheRankAndTheCall) {
  fake::nccl::fail_init(1, ncclUnhandledCudaError, "Cuda failure 'out of memory'");
  EXPECT_EQ(NcclRun{.ranks = 2}.failure([](NcclRankContext&) {}),
            "rank 1: ncclCommInitRankConfig of group world failed: unhandled cuda error: Cuda failure 'out of memory'");
  EXPECT_EQ(fake::nccl::counts().aborted, 2);
}

TEST_F(NcclFailureTest, ARankThatNeverJoinsIsADeadline) {
  launch::Abort abort;
  ThreadExchange ids(abort, 1);
  TestLanes lanes(abort, 0);
  NcclDeadlines deadlines;
  deadlines.op = milliseconds(50);
  try {
    make_nccl_communicator(lanes, ids, 0, 2, {}, deadlines);
    FAIL() << "nothing was thrown";
  } catch (const BackendError& e) {
    EXPECT_STREQ(e.what(), "rank 0: ncclCommInitRankConfig of group world has not finished after 0.05 s");
  }
  EXPECT_FALSE(lanes.watched());
}

TEST_F(NcclFailureTest, ARankThatDoesNotSplitIsADeadline) {
  NcclRun run{.ranks = 2};
  run.deadlines.op = milliseconds(400);
  EXPECT_EQ(run.failure([](NcclRankContext& rank) {
    if (rank.rank == 0) rank.world.split(0, 0);
    rank.world.barrier();
  }),
            "rank 0: ncclCommSplit of group world has not finished after 0.4 s");
}

TEST_F(NcclFailureTest, AChildOfASplitThatFailedIsAbortedAfterItsParent) {
  NcclRun run{.ranks = 3};
  run.deadlines.op = milliseconds(400);
  run.failure([](NcclRankContext& rank) {
    if (rank.rank < 2) rank.world.split(0, rank.rank);
    rank.world.barrier();
  });
  EXPECT_EQ(fake::nccl::counts().aborted, 5) << "NCCL hands the children out, also of a split that failed";
}

TEST_F(NcclFailureTest, AFailureElsewhereAbortsTheCommunicatorsOfAllRanks) {
  EXPECT_EQ(NcclRun{.ranks = 3}.failure([](NcclRankContext& rank) {
    const auto part = rank.world.split(0, rank.rank);
    if (rank.rank == 1) throw BackendError("broken on purpose");
    std::vector<float> values(3);
    part->all_reduce(Lane::all_reduce, bytes_of(values), 3, DType::f32, 1.0F, nullptr);
    rank.lanes.synchronize();
  }),
            "broken on purpose");
  EXPECT_EQ(fake::nccl::counts().aborted, 6);
  EXPECT_EQ(fake::nccl::counts().destroyed, 0);
}

TEST_F(NcclFailureTest, AfterTheFailureEveryCallStops) {
  NcclRun{.ranks = 2}.failure([](NcclRankContext& rank) {
    if (rank.rank == 0) throw BackendError("broken on purpose");
    std::vector<float> values(2);
    EXPECT_THROW(for (;;) reduce(rank, 1), launch::Stopped);
    EXPECT_THROW(rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 2, DType::f32, 0.3F, nullptr),
                 launch::Stopped);
    EXPECT_THROW(rank.world.split(0, 0), launch::Stopped);
    EXPECT_THROW(rank.world.barrier(), launch::Stopped);
  });
  EXPECT_EQ(fake::nccl::counts().aborted, 2);
}

TEST_F(NcclFailureTest, AnAbortThatHangsEndsTheProcessWithTheOpsThatHung) {
  fake::nccl::hang_op(1, 2);
  fake::nccl::hang_abort();
  std::mutex mutex;
  std::vector<std::string> last_words;
  NcclRun run{.ranks = 2};
  run.deadlines.op = milliseconds(400);
  run.deadlines.abort = milliseconds(50);
  run.deadlines.give_up = [&](const std::string& words) {
    const std::lock_guard lock(mutex);
    last_words.push_back(words);
    if (last_words.size() == 2) fake::nccl::release_abort();
  };
  run.failure([](NcclRankContext& rank) { reduce(rank, 3); });
  const std::lock_guard lock(mutex);
  EXPECT_THAT(last_words,
              testing::UnorderedElementsAre("rank 0: ncclCommAbort has not returned after 0.05 s; not finished: "
                                            "all_reduce #2 of group world on lane all_reduce; this process ends now.",
                                            "rank 1: ncclCommAbort has not returned after 0.05 s; not finished: "
                                            "all_reduce #2 of group world on lane all_reduce; this process ends now."));
}

TEST_F(NcclFailureTest, TheRunHearsOfTheFailureBeforeAnAbortCanHang) {
  fake::nccl::fail_op(0, 1, ncclSystemError, "no route");
  fake::nccl::hang_abort();
  launch::Abort abort;
  std::atomic<bool> heard{false};
  NcclRun run{.ranks = 2};
  run.shared_abort = &abort;
  run.deadlines.abort = milliseconds(50);
  run.deadlines.give_up = [&](const std::string&) {
    if (abort.is_set()) heard = true;
    fake::nccl::release_abort();
  };
  EXPECT_THAT(run.failure([](NcclRankContext& rank) { reduce(rank, 1); }), HasSubstr("no route"));
  EXPECT_TRUE(heard.load());
}

TEST_F(NcclFailureTest, AnAbortInTimeIsNotGivenUp) {
  std::atomic<int> given_up{0};
  {
    const AbortGuard guard(milliseconds(500), "words", [&](const std::string&) { ++given_up; });
  }
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_EQ(given_up.load(), 0);
}

TEST(NcclFailureDeathTest, GivingUpEndsTheProcessAsAFailedRank) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(exit_at_once("rank 3 hangs."), testing::ExitedWithCode(5), "fsdpbench: rank 3 hangs\\.");
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
