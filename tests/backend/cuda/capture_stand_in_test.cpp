// The stand-in for CUDA's stream capture and graphs itself: that it takes what the CUDA C++ Programming Guide allows
// ("Creating a Graph Using Stream Capture"), and refuses what that forbids.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/fake/fake_stream.h"

namespace fsdpbench::backend::cuda {
namespace {

class CaptureStandIn : public testing::Test {
 protected:
  CaptureStandIn() {
    for (cudaStream_t* stream : {&one_, &other_}) cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    for (cudaEvent_t* event : {&fork_, &join_, &timed_}) cudaEventCreate(event);
    cudaMallocHost(&pinned_, 64);
    cudaMalloc(&device_, 64);
  }
  ~CaptureStandIn() override {
    cudaGraph_t left = nullptr;
    if (capturing()) cudaStreamEndCapture(one_, &left);
    if (left != nullptr) cudaGraphDestroy(left);
    for (cudaStream_t stream : {one_, other_}) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    for (cudaEvent_t event : {fork_, join_, timed_}) cudaEventDestroy(event);
    cudaFreeHost(pinned_);
    cudaFree(device_);
    cudaGetLastError();
  }

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(one_, mode), cudaSuccess);
  }
  bool capturing() {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(one_, &status);
    return status != cudaStreamCaptureStatusNone;
  }
  cudaError_t end(cudaGraph_t* graph = nullptr) {
    cudaGraph_t made = nullptr;
    const cudaError_t error = cudaStreamEndCapture(one_, &made);
    EXPECT_EQ(made == nullptr, error != cudaSuccess);
    if (graph != nullptr) {
      *graph = made;
    } else if (made != nullptr) {
      cudaGraphDestroy(made);
    }
    return error;
  }
  /// The other stream takes part; what it does is joined again if `joins`.
  void fork() {
    ASSERT_EQ(cudaEventRecord(fork_, one_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(other_, fork_, 0), cudaSuccess);
  }
  void rejoin() {
    ASSERT_EQ(cudaEventRecord(join_, other_), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(one_, join_, 0), cudaSuccess);
  }
  /// Says that a captured call gave `error` and that the capture is lost with it.
  void expect_lost(cudaError_t given, cudaError_t error) {
    EXPECT_EQ(given, error);
    EXPECT_EQ(cudaMemsetAsync(device_, 0, 1, one_), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_FALSE(capturing());
  }

  cudaStream_t one_ = nullptr, other_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr, timed_ = nullptr;
  void* pinned_ = nullptr;
  void* device_ = nullptr;
};

TEST_F(CaptureStandIn, WhatIsCapturedRunsAtEachLaunchAndNotBefore) {
  std::atomic<int> ran = 0;
  begin();
  fork();
  fake::run_on_stream(other_, [&] { ran += 10; });
  fake::run_on_stream(one_, [&] { ++ran; });
  rejoin();
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(end(&graph), cudaSuccess);
  std::size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 2U);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  cudaDeviceSynchronize();
  EXPECT_EQ(ran, 0);
  const std::uint64_t launches = fake::graph_launches();
  for (const int expected : {11, 22, 33}) {
    EXPECT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
    cudaStreamSynchronize(one_);
    EXPECT_EQ(ran, expected);
  }
  EXPECT_EQ(fake::graph_launches() - launches, 3U);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CaptureStandIn, NodesOfTwoStreamsRunAtOnceAndAfterWhatTheyWaitFor) {
  std::atomic<bool> here = false;
  std::atomic<bool> there = false;
  std::atomic<bool> together = false;
  begin();
  fork();
  fake::run_on_stream(one_, [&] {  // each ends only once the other runs
    here = true;
    here.notify_all();
    there.wait(false);
  });
  fake::run_on_stream(other_, [&] {
    there = true;
    there.notify_all();
    here.wait(false);
  });
  rejoin();
  fake::run_on_stream(one_, [&] { together = here && there; });
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(end(&graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  cudaGraphLaunch(executable, other_);
  cudaGraphExecDestroy(executable);  // runs to its end
  cudaGraphDestroy(graph);
  cudaStreamSynchronize(other_);
  EXPECT_TRUE(together);
}

TEST_F(CaptureStandIn, ACopyReadsItsMemoryAtEachLaunch) {
  auto* const source = static_cast<char*>(pinned_);
  begin();
  ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, 1, cudaMemcpyHostToDevice, one_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(end(&graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  for (const char value : {'a', 'b'}) {
    *source = value;
    cudaGraphLaunch(executable, one_);
    cudaStreamSynchronize(one_);
    EXPECT_EQ(*static_cast<char*>(device_), value);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CaptureStandIn, ExternalEventsSayWhenALaunchCameToThem) {
  begin();
  ASSERT_EQ(cudaEventRecordWithFlags(timed_, one_, cudaEventRecordExternal), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(end(&graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  cudaEventRecord(fork_, one_);
  for (int launch = 0; launch < 2; ++launch) {
    cudaGraphLaunch(executable, one_);
    cudaEventRecord(join_, one_);
    cudaEventSynchronize(join_);
    float after = -1;
    float before = -1;
    EXPECT_EQ(cudaEventElapsedTime(&after, fork_, timed_), cudaSuccess);
    EXPECT_EQ(cudaEventElapsedTime(&before, timed_, join_), cudaSuccess);
    EXPECT_GE(after, 0);
    EXPECT_GE(before, 0);
    cudaEventRecord(fork_, one_);
  }
  EXPECT_EQ(cudaEventRecordWithFlags(timed_, one_, cudaEventRecordExternal), cudaErrorInvalidValue)
      << "outside of a capture";
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(CaptureStandIn, NobodyAsksAStreamThatCaptures) {
  const std::vector<std::function<cudaError_t()>> questions{
      [&] { return cudaStreamQuery(one_); }, [&] { return cudaStreamSynchronize(one_); },
      [&] { return cudaStreamQuery(other_); }, [] { return cudaDeviceSynchronize(); }};
  for (const auto& ask : questions) {
    begin();
    fork();
    expect_lost(ask(), cudaErrorStreamCaptureUnsupported);
  }
}

TEST_F(CaptureStandIn, NobodyAsksAnEventThatWasCapturedAlsoAfterwards) {
  begin();
  cudaEventRecord(fork_, one_);
  expect_lost(cudaEventQuery(fork_), cudaErrorCapturedEvent);
  begin();
  cudaEventRecord(fork_, one_);
  expect_lost(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventQuery(fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other_, fork_, 0), cudaErrorCapturedEvent);
  float time = 0;
  EXPECT_EQ(cudaEventElapsedTime(&time, fork_, fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventRecord(fork_, one_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaSuccess) << "recorded again";
}

TEST_F(CaptureStandIn, TheThreadThatCapturesMayNotDisturb) {
  void* memory = nullptr;
  cudaEventRecord(timed_, other_);
  cudaEventSynchronize(timed_);
  const std::vector<std::function<cudaError_t()>> calls{
      [&] { return cudaMalloc(&memory, 8); }, [&] { return cudaFree(device_); },
      [&] { return cudaMallocHost(&memory, 8); }, [&] { return cudaFreeHost(pinned_); },
      [&] { return cudaEventQuery(timed_); }};
  for (const auto& call : calls) {
    begin();
    expect_lost(call(), cudaErrorStreamCaptureUnsupported);
  }
}

TEST_F(CaptureStandIn, OtherThreadsMayUnlessTheCaptureIsGlobal) {
  const auto on_another_thread = [&] {
    cudaError_t error = cudaErrorUnknown;
    std::thread([&] {
      void* memory = nullptr;
      error = cudaMalloc(&memory, 8);
      if (error == cudaSuccess) cudaFree(memory);
    }).join();
    return error;
  };
  begin();
  EXPECT_EQ(on_another_thread(), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  begin(cudaStreamCaptureModeGlobal);
  expect_lost(on_another_thread(), cudaErrorStreamCaptureUnsupported);
}

TEST_F(CaptureStandIn, AThreadMayTakeTheProtectionBack) {
  begin();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 8), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  cudaThreadExchangeStreamCaptureMode(&mode);
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CaptureStandIn, ACaptureWaitsForNothingFromOutside) {
  cudaEventRecord(timed_, other_);
  begin();
  expect_lost(cudaStreamWaitEvent(one_, timed_, 0), cudaErrorStreamCaptureIsolation);
  begin();
  cudaEventRecord(fork_, one_);
  ASSERT_EQ(cudaStreamBeginCapture(other_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other_, fork_, 0), cudaErrorStreamCaptureMerge);
  cudaGraph_t none = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other_, &none), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(), cudaSuccess);
}

TEST_F(CaptureStandIn, PageableMemoryIsNotCopied) {
  std::vector<char> pageable(8);
  begin();
  expect_lost(cudaMemcpyAsync(device_, pageable.data(), 8, cudaMemcpyHostToDevice, one_),
              cudaErrorStreamCaptureUnsupported);
  begin();
  expect_lost(cudaMemcpyAsync(pageable.data(), device_, 8, cudaMemcpyDeviceToHost, one_),
              cudaErrorStreamCaptureUnsupported);
}

TEST_F(CaptureStandIn, WorkThatIsNotJoinedIsNoGraph) {
  begin();
  fork();
  cudaMemsetAsync(device_, 0, 1, other_);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  EXPECT_FALSE(capturing());
}

TEST_F(CaptureStandIn, ACaptureEndsWhereItBegan) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = cudaStreamEndCapture(one_, &graph); }).join();
  EXPECT_EQ(elsewhere, cudaErrorStreamCaptureWrongThread);
  EXPECT_EQ(end(), cudaSuccess);
  begin();
  fork();
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(CaptureStandIn, MemoryInStreamOrderIsRefused) {
  void* memory = nullptr;
  begin();
  EXPECT_EQ(cudaMallocAsync(&memory, 8, one_), cudaErrorNotSupported);
  EXPECT_EQ(end(), cudaSuccess);
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
