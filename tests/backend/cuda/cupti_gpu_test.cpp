// The tracer on a real GPU: what CUPTI is assumed to do, it does.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <map>
#include <thread>

#include "backend/cuda/op_timer.h"
#include "base/clock.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20U;

class CuptiOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    int gpus = 0;
    const cudaError_t status = cudaGetDeviceCount(&gpus);
    if (status != cudaSuccess || gpus == 0) {
      GTEST_SKIP() << "no GPU: " << (status == cudaSuccess ? "none was found" : cudaGetErrorString(status));
    }
    // The context is older than the timer, as in a run.
    for (cudaStream_t& stream : streams)
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (void*& block : memory) ASSERT_EQ(cudaMalloc(&block, kBytes), cudaSuccess);
    std::string why_not;
    timer = make_cupti_timer(&why_not);
    ASSERT_NE(timer, nullptr) << why_not;
  }
  void TearDown() override {
    if (timer == nullptr) return;
    cudaDeviceSynchronize();
    timer.reset();
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
    for (void* block : memory) cudaFree(block);
  }
  std::map<std::string, std::string> facts() const {
    const Facts list = timer->facts();
    return {list.begin(), list.end()};
  }

  std::unique_ptr<OpTimer> timer;
  std::array<cudaStream_t, 2> streams{};
  std::array<void*, 2> memory{};
};

TEST_F(CuptiOnGpu, StampsLieBetweenIssueAndSynchronisationAndNothingIsLost) {
  for (int step = 0; step < 20; ++step) {
    std::array<Stamp, 4> stamps{};
    const std::int64_t begin = now_ns();
    for (int i = 0; i < 4; ++i) {
      cudaStream_t stream = streams[static_cast<std::size_t>(i % 2)];
      const Lane lane = i % 2 == 0 ? Lane::compute : Lane::copy;
      timer->begin(lane, stream, step, i, &stamps[static_cast<std::size_t>(i)]);
      if (i == 0) {
        ASSERT_EQ(cudaMemsetAsync(memory[0], step, kBytes, stream), cudaSuccess);
        ASSERT_EQ(cudaMemcpyAsync(memory[1], memory[0], kBytes, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
      } else if (i == 1) {  // as NCCL's non-blocking groups do
        std::thread([&] { cudaMemsetAsync(memory[1], step, kBytes, stream); }).join();
      } else if (i == 2) {
        ASSERT_EQ(cudaMemsetAsync(memory[0], step, kBytes, stream), cudaSuccess);
      }  // the last does nothing
      timer->end(lane, stream);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::int64_t end = now_ns();
    const std::int64_t before_settling = end;
    timer->settle();
    EXPECT_LT(now_ns() - before_settling, 1'000'000'000) << "records came late in step " << step;

    constexpr std::int64_t kClocks = 50'000;  // between the GPU's clock and the host's
    for (std::size_t i : {0U, 1U, 2U}) {
      EXPECT_GT(stamps[i].begin_ns, begin - kClocks) << i;
      EXPECT_LT(stamps[i].end_ns, end + kClocks) << i;
      EXPECT_GT(stamps[i].end_ns, stamps[i].begin_ns) << i;
    }
    EXPECT_GE(stamps[2].begin_ns, stamps[0].end_ns);  // one stream
    EXPECT_EQ(stamps[3].begin_ns, stamps[3].end_ns);
    const Activities works = timer->take_activities();
    std::array<int, 4> of_op{};
    for (const Activity& a : works.all) ++of_op.at(static_cast<std::size_t>(a.op));
    EXPECT_EQ(of_op, (std::array<int, 4>{2, 1, 1, 0}));
  }
  for (const auto& [name, value] : facts()) std::cout << name << ": " << value << "\n";
  for (const char* loss : {"ops without times", "records dropped", "record buffers dropped", "records without time",
                           "records incomplete", "launches without record", "records without launch", "op marks"}) {
    EXPECT_EQ(facts().count(loss), 0U) << loss;
  }
}

TEST_F(CuptiOnGpu, RecordsAgainWhenSwitchedOnAnew) {
  timer.reset();
  std::string why_not;
  timer = make_cupti_timer(&why_not);
  ASSERT_NE(timer, nullptr) << why_not;
  Stamp stamp;
  timer->begin(Lane::copy, streams[0], 0, 0, &stamp);
  ASSERT_EQ(cudaMemsetAsync(memory[0], 1, kBytes, streams[0]), cudaSuccess);
  timer->end(Lane::copy, streams[0]);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  timer->settle();
  EXPECT_GT(stamp.end_ns, stamp.begin_ns);
}

TEST_F(CuptiOnGpu, ManyThreadsThatEndAfterOneCallDoNotUseUpTheBuffers) {
  for (int step = 0; step < 5; ++step) {
    std::vector<Stamp> stamps(400);
    for (std::size_t i = 0; i < stamps.size(); ++i) {
      timer->begin(Lane::copy, streams[0], step, static_cast<std::int32_t>(i), &stamps[i]);
      std::thread([&] { cudaMemsetAsync(memory[0], 1, 4096, streams[0]); }).join();
      timer->end(Lane::copy, streams[0]);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    timer->settle();
    for (const Stamp& stamp : stamps) EXPECT_GT(stamp.end_ns, stamp.begin_ns);
  }
  EXPECT_EQ(facts().count("record buffers dropped"), 0U);
  EXPECT_EQ(facts().count("ops without times"), 0U);
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
