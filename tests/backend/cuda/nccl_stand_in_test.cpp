// The stand-in for NCCL itself: that it takes its time where NCCL does, and refuses what NCCL refuses (init.cc,
// group.cc and dev_runtime.cc of 2.28.9). Without that the tests that use it would show little.

#include <cuda_runtime_api.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/nccl_support.h"

namespace fsdpbench::backend::cuda {
namespace {

using ::testing::HasSubstr;

/// Two communicators of one group, ready. They are aborted at the end.
class NcclStandInTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::nccl::reset();
    fake::reset();
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ASSERT_EQ(ncclCommInitRankConfig(&comms_[rank], 2, id, rank, &config), ncclInProgress);
      ASSERT_EQ(cudaStreamCreateWithFlags(&streams_[rank], cudaStreamNonBlocking), cudaSuccess);
    }
    for (ncclComm_t comm : comms_) ASSERT_EQ(settle(comm), ncclSuccess);
    cudaSetDevice(0);
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) ncclCommAbort(comm);
    for (cudaStream_t stream : streams_) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    fake::nccl::reset();
  }

  static ncclResult_t state(ncclComm_t comm) {
    ncclResult_t result = ncclSuccess;
    const ncclResult_t answer = ncclCommGetAsyncError(comm, &result);
    return answer != ncclSuccess ? answer : result;
  }
  static ncclResult_t settle(ncclComm_t comm) {
    ncclResult_t result = ncclInProgress;
    while ((result = state(comm)) == ncclInProgress) std::this_thread::yield();
    return result;
  }
  ncclResult_t reduce(int rank, cudaStream_t stream) {
    return ncclAllReduce(&values_[rank], &values_[rank], 1, ncclFloat32, ncclSum, comms_[rank], stream);
  }
  ncclResult_t split(int rank, ncclComm_t* child) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommSplit(comms_[rank], 0, rank, child, &config);
  }
  ncclResult_t open_window(int rank, std::size_t bytes) {
    return ncclCommWindowRegister(comms_[rank], &values_[rank], bytes, &windows_[rank], NCCL_WIN_COLL_SYMMETRIC);
  }

  ncclComm_t comms_[2] = {};
  cudaStream_t streams_[2] = {};
  float values_[2] = {1, 2};
  ncclWindow_t windows_[2] = {};
};

TEST_F(NcclStandInTest, AWindowsSuccessIsNoEnd) {
  EXPECT_EQ(open_window(0, 64), ncclSuccess);
  EXPECT_EQ(state(comms_[0]), ncclInProgress);
  EXPECT_EQ(reduce(0, streams_[0]), ncclInvalidArgument) << "the call before is in progress";
  EXPECT_EQ(state(comms_[0]), ncclInvalidArgument) << "and the communicator is lost";
}

TEST_F(NcclStandInTest, AWindowIsThereWhenAllRanksHaveAskedForIt) {
  EXPECT_EQ(open_window(0, 64), ncclSuccess);
  EXPECT_EQ(open_window(1, 64), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(settle(comms_[rank]), ncclSuccess);
    EXPECT_NE(windows_[rank], nullptr);
  }
}

TEST_F(NcclStandInTest, WindowsOfDifferentSizesAreRefused) {
  open_window(0, 64);
  EXPECT_EQ(open_window(1, 32), ncclInvalidArgument);
}

TEST_F(NcclStandInTest, AChildIsThereAndSilentBeforeItsParentIsDone) {
  fake::nccl::set_polls(1000);
  ncclComm_t children[2] = {};
  EXPECT_EQ(split(0, &children[0]), ncclSuccess);
  EXPECT_EQ(split(1, &children[1]), ncclSuccess);
  while (std::atomic_ref(children[0]).load() == nullptr) std::this_thread::yield();
  EXPECT_EQ(state(children[0]), ncclSuccess);
  EXPECT_EQ(state(comms_[0]), ncclInProgress);
  EXPECT_EQ(split(0, &children[1]), ncclInvalidArgument) << "the parent's split is in progress";
  for (ncclComm_t comm : comms_) settle(comm);
  for (ncclComm_t child : children) EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
}

TEST_F(NcclStandInTest, ASplitThatFailsHandsOutItsChildToo) {
  ncclComm_t child = nullptr;
  EXPECT_EQ(split(0, &child), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comms_[0]), ncclSuccess) << "the other rank never splits";
  ASSERT_NE(child, nullptr);
  EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
}

TEST_F(NcclStandInTest, TheFirstCollectiveTakesAllRanks) {
  EXPECT_EQ(reduce(0, streams_[0]), ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(state(comms_[0]), ncclInProgress);
  EXPECT_EQ(cudaStreamQuery(streams_[0]), cudaSuccess) << "nothing is launched before it is connected";
  EXPECT_EQ(reduce(1, streams_[1]), ncclInProgress);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(settle(comms_[rank]), ncclSuccess);
    cudaStreamSynchronize(streams_[rank]);
    EXPECT_EQ(values_[rank], 3.0F);
  }
}

TEST_F(NcclStandInTest, AnExchangeIsAGroupOfAsManySendsAsReceives) {
  float received[2][2] = {};
  const auto exchange = [&](int rank, bool receives) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int peer = 0; peer < 2; ++peer) {
      EXPECT_EQ(ncclSend(&values_[rank], 1, ncclFloat32, peer, comms_[rank], streams_[rank]), ncclSuccess);
      if (!receives) continue;
      EXPECT_EQ(ncclRecv(&received[rank][peer], 1, ncclFloat32, peer, comms_[rank], streams_[rank]), ncclSuccess);
    }
    return ncclGroupEnd();
  };
  EXPECT_EQ(exchange(0, false), ncclInvalidArgument);
  EXPECT_THAT(fake::nccl::misuses(), HasSubstr("a send or a receive is missing"));
  EXPECT_EQ(ncclSend(values_, 1, ncclFloat32, 1, comms_[0], streams_[0]), ncclInvalidArgument);
  EXPECT_THAT(fake::nccl::misuses(), HasSubstr("outside a group"));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(exchange(rank, true), ncclInProgress);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(settle(comms_[rank]), ncclSuccess);
    cudaStreamSynchronize(streams_[rank]);
    EXPECT_EQ(received[rank][0], 1.0F);
    EXPECT_EQ(received[rank][1], 2.0F);
  }
}

TEST_F(NcclStandInTest, Misuse) {
  EXPECT_EQ(reduce(0, streams_[1]), ncclInvalidArgument);
  EXPECT_THAT(fake::nccl::misuses(), HasSubstr("the stream is another GPU's"));
  EXPECT_EQ(ncclCommDestroy(comms_[1]), ncclInvalidArgument);
  EXPECT_THAT(fake::nccl::misuses(), HasSubstr("the communicator is not finalized"));
  ncclRedOp_t op = ncclSum;
  float scale = 0.5F;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scale, ncclFloat32, ncclScalarDevice, comms_[1]), ncclInvalidArgument);
  ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommSplit(comms_[1], 0, 0, &child, &blocking), ncclInvalidArgument);
  EXPECT_EQ(ncclCommFinalize(comms_[1]), ncclInProgress);
  int size = 0;
  EXPECT_EQ(ncclCommCount(comms_[1], &size), ncclInvalidArgument) << "in progress";
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
