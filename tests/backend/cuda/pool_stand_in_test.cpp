// The stand-in for CUDA's memory pools itself: that memory goes from stream to stream as the CUDA C++ Programming Guide
// says, and not otherwise.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>

#include "backend/cuda/fake/fake_stream.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A pool on two streams. Everything is off that can be turned off.
class PoolStandIn : public testing::Test {
 protected:
  PoolStandIn() {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    EXPECT_EQ(cudaMemPoolCreate(&pool_, &properties), cudaSuccess);
    set(cudaMemPoolReuseFollowEventDependencies, 0);
    set(cudaMemPoolReuseAllowOpportunistic, 0);
    set(cudaMemPoolReuseAllowInternalDependencies, 0);
    keep(std::numeric_limits<std::uint64_t>::max());
    for (cudaStream_t* stream : {&one_, &other_}) cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
  }
  ~PoolStandIn() override {
    let_go();
    for (cudaStream_t stream : {one_, other_}) cudaStreamSynchronize(stream);
    EXPECT_EQ(cudaMemPoolDestroy(pool_), cudaSuccess);
    for (cudaStream_t stream : {one_, other_}) cudaStreamDestroy(stream);
    cudaEventDestroy(event_);
  }

  void set(cudaMemPoolAttr attribute, int value) {
    EXPECT_EQ(cudaMemPoolSetAttribute(pool_, attribute, &value), cudaSuccess);
  }
  void keep(std::uint64_t bytes) {
    EXPECT_EQ(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &bytes), cudaSuccess);
  }
  std::uint64_t reserved() {
    std::uint64_t bytes = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes), cudaSuccess);
    return bytes;
  }
  void* take(cudaStream_t stream, std::size_t bytes = kMiB) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&memory, bytes, pool_, stream), cudaSuccess);
    return memory;
  }
  void give_back(void* memory, cudaStream_t stream) { EXPECT_EQ(cudaFreeAsync(memory, stream), cudaSuccess); }
  /// The stream stands still until let_go().
  void hold(cudaStream_t stream) {
    fake::run_on_stream(stream, [this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !held_; });
    });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  static void wait_for(const std::function<bool()>& done) {
    while (!done()) std::this_thread::yield();
  }

  cudaMemPool_t pool_ = nullptr;
  cudaStream_t one_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = true;
};

TEST_F(PoolStandIn, AStreamHasAtOnceWhatItGaveBack) {
  hold(one_);
  void* const block = take(one_);
  give_back(block, one_);
  EXPECT_EQ(take(one_), block);
}

TEST_F(PoolStandIn, AnotherStreamHasItAfterAnEventIfEventsCount) {
  hold(one_);
  void* const block = take(one_);
  cudaEventRecord(event_, one_);
  give_back(block, one_);
  cudaStreamWaitEvent(other_, event_, 0);
  set(cudaMemPoolReuseFollowEventDependencies, 1);
  EXPECT_NE(take(other_), block) << "the event was before it was given back";
  cudaEventRecord(event_, one_);
  cudaStreamWaitEvent(other_, event_, 0);
  set(cudaMemPoolReuseFollowEventDependencies, 0);
  EXPECT_NE(take(other_), block) << "events do not count";
  set(cudaMemPoolReuseFollowEventDependencies, 1);
  EXPECT_EQ(take(other_), block);
}

TEST_F(PoolStandIn, TheHostLearnsFromAWaitAndNotFromAQuestion) {
  void* const block = take(one_);
  give_back(block, one_);
  cudaEventRecord(event_, one_);
  wait_for([&] { return cudaStreamQuery(one_) == cudaSuccess && cudaEventQuery(event_) == cudaSuccess; });
  EXPECT_NE(take(other_), block);
  cudaEventSynchronize(event_);
  EXPECT_EQ(take(other_), block);
}

TEST_F(PoolStandIn, WhatIsDoneMayBeHadIfThePoolLooks) {
  set(cudaMemPoolReuseAllowOpportunistic, 1);
  hold(one_);
  void* const block = take(one_);
  give_back(block, one_);
  EXPECT_NE(take(other_), block);
  let_go();
  wait_for([&] { return cudaStreamQuery(one_) == cudaSuccess; });
  EXPECT_EQ(take(other_), block);
}

TEST_F(PoolStandIn, AWaitMayBePutInBetween) {
  set(cudaMemPoolReuseAllowInternalDependencies, 1);
  hold(one_);
  void* const block = take(one_, 2 * kMiB);
  give_back(block, one_);
  EXPECT_EQ(take(other_, 2 * kMiB), block);
  EXPECT_EQ(cudaStreamQuery(other_), cudaErrorNotReady) << "it goes on when the other stream does";
  let_go();
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
}

TEST_F(PoolStandIn, FragmentsAndGrows) {
  give_back(take(one_, 8 * kMiB), one_);
  EXPECT_EQ(reserved(), 8 * kMiB);
  void* blocks[4];
  for (void*& block : blocks) block = take(one_, 2 * kMiB);
  EXPECT_EQ(reserved(), 8 * kMiB);
  give_back(blocks[0], one_);
  give_back(blocks[2], one_);
  take(one_, 4 * kMiB);
  EXPECT_EQ(reserved(), 12 * kMiB) << "4 MiB were free, and not in one piece";
  give_back(blocks[1], one_);
  take(one_, 6 * kMiB);
  EXPECT_EQ(reserved(), 12 * kMiB) << "neighbours that are free are one piece";
}

TEST_F(PoolStandIn, GivesBackBeyondItsThresholdWhenTheHostWaits) {
  give_back(take(one_, 4 * kMiB), one_);
  cudaStreamSynchronize(one_);
  EXPECT_EQ(reserved(), 4 * kMiB);
  keep(0);
  void* const block = take(one_);
  cudaStreamSynchronize(one_);
  EXPECT_EQ(reserved(), 4 * kMiB) << "a part of it is in use";
  give_back(block, one_);
  EXPECT_EQ(reserved(), 4 * kMiB) << "nobody has waited";
  cudaStreamSynchronize(one_);
  EXPECT_EQ(reserved(), 0U);
}

TEST_F(PoolStandIn, WhatItHasReservedIsNotFree) {
  std::size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  give_back(take(one_, 64 * kMiB), one_);
  cudaStreamSynchronize(one_);
  cudaMemGetInfo(&after, &total);
  EXPECT_EQ(before - after, 64 * kMiB);
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
