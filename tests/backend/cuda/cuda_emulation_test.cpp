// The emulation that runs CUDA kernels on the host.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "backend/cuda/cuda_kernel_host.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/fake/kernels/grid_runner.h"
#include "backend/cuda/fake/kernels/warp_exchange.h"
#include "base/error.h"

namespace fake {
namespace {

TEST(CudaEmulation, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<int> runs(3 * 2 * 2 * 5 * 4 * 2);
  run_grid("k", dim3(3, 2, 2), dim3(5, 4, 2), [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    ++runs[block * 40 + thread];
  });
  EXPECT_THAT(runs, testing::Each(1));
}

TEST(CudaEmulation, ABarrierHoldsAllThreadsOfABlock) {
  constexpr unsigned kThreads = 96, kRounds = 5;
  std::vector<unsigned> left(kThreads);
  bool in_step = true;
  run_grid("k", dim3(4), dim3(kThreads), [&] {
    const unsigned round_of_block = blockIdx.x * kRounds;
    for (unsigned round = 1; round <= kRounds; ++round) {
      left[threadIdx.x] = round_of_block + round;
      sync_block();
      for (const unsigned other : left) in_step = in_step && other == round_of_block + round;
      sync_block();
    }
  });
  EXPECT_TRUE(in_step);
}

TEST(CudaEmulation, EndedThreadsHoldNobody) {
  int beyond = 0;
  run_grid("k", dim3(2), dim3(64), [&] {
    if (threadIdx.x % 3 == 0) return;
    sync_block();
    ++beyond;
  });
  EXPECT_EQ(beyond, 2 * 42);
}

TEST(CudaEmulation, LanesExchangeValuesAndVotes) {
  std::vector<double> sums(128);
  std::vector<unsigned> votes(128);
  run_grid("k", dim3(2), dim3(64), [&] {
    const unsigned at = blockIdx.x * 64 + threadIdx.x;
    double value = at;
    for (int mask = 16; mask > 0; mask /= 2) value += of_lane(0xFFFFFFFFU, value, lane() ^ mask);
    sums[at] = value;
    votes[at] = ballot(0xFFFFFFFFU, lane() % 3 == 0);
  });
  for (unsigned i = 0; i < 128; ++i) {
    const unsigned first = i / 32 * 32;
    EXPECT_EQ(sums[i], 32.0 * first + 31 * 16);
    EXPECT_EQ(votes[i], 0x49249249U);
  }
}

TEST(CudaEmulation, AMissingBarrierShows) {
  // Each thread reads what its neighbour wrote; without a barrier that is right in one order of the threads only.
  int wrong = 0;
  std::vector<unsigned> written(64);
  run_grid("k", dim3(2), dim3(64), [&] {
    written[threadIdx.x] = blockIdx.x + 1;
    if (threadIdx.x > 0 && written[threadIdx.x - 1] != blockIdx.x + 1) ++wrong;
  });
  EXPECT_GT(wrong, 0);
}

TEST(CudaEmulationDeathTest, NamesTheKernelThatHangs) {
  EXPECT_DEATH(run_grid("half_a_barrier", dim3(1), dim3(64),
                        [] {
                          if (threadIdx.x < 40)
                            sync_warp();
                          else
                            sync_block();
                        }),
               "half_a_barrier.*wait at a barrier that others");
}

TEST(CudaEmulationDeathTest, RefusesLaunchesThatNoGpuTakes) {
  EXPECT_DEATH(check_launch("wide", dim3(1), dim3(1025), 8), "wide.*from 1 to 1024 threads");
  EXPECT_DEATH(check_launch("tall", dim3(1, 65536), dim3(32), 8), "tall.*larger than any GPU takes");
  EXPECT_DEATH(check_launch("laden", dim3(1), dim3(32), 4097), "laden.*4096 bytes");
}

TEST(CudaEmulation, AFailedLaunchNamesTheKernel) {
  namespace backend = fsdpbench::backend;
  backend::cuda::CudaHost host;
  std::byte* const memory = host.allocate(16);
  fail_call("cudaLaunchKernelExC", cudaErrorLaunchOutOfResources);
  const auto rectify = [&] {
    host.run([&](backend::Kernels& kernels) { kernels.relu(memory, memory, 4, fsdpbench::DType::f32); });
  };
  EXPECT_THAT(rectify, testing::ThrowsMessage<fsdpbench::BackendError>(testing::StartsWith("relu: ")));
  EXPECT_NO_THROW(rectify());  // the failure was once
  reset();
}

}  // namespace
}  // namespace fake
