// The tracer over the fake CUDA runtime: streams are threads, and CUPTI records what they did.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "backend/cuda/fake/cupti/fake_cupti.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/op_timer.h"
#include "base/clock.h"

namespace fsdpbench::backend::cuda {
namespace {

class CuptiEmulated : public testing::Test {
 protected:
  void SetUp() override {
    fake::cupti::reset();
    for (cudaStream_t& stream : streams) ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);  // the context first
    std::string why_not;
    timer = make_cupti_timer(&why_not);
    ASSERT_NE(timer, nullptr) << why_not;
  }
  void TearDown() override {
    timer.reset();
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
    fake::reset();
  }
  static void work() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

  std::unique_ptr<OpTimer> timer;
  std::array<cudaStream_t, 2> streams{};
};

TEST_F(CuptiEmulated, StampsAreWhatTheStreamsDid) {
  fake::run_on_stream(streams[0], work, {fake::WorkKind::kernel, "before_recording", 0});  // belongs to no op
  for (int step = 0; step < 3; ++step) {
    std::array<Stamp, 4> stamps{};
    const std::int64_t begin = now_ns();
    for (int i = 0; i < 4; ++i) {
      cudaStream_t stream = streams[static_cast<std::size_t>(i % 2)];
      const Lane lane = i % 2 == 0 ? Lane::compute : Lane::all_gather;
      timer->begin(lane, stream, step, i, &stamps[static_cast<std::size_t>(i)]);
      if (i == 3) {  // as NCCL does
        std::thread([&] {
          fake::run_on_stream(stream, work, {fake::WorkKind::kernel, "ncclDevKernel_AllGather", 0});
        }).join();
      } else if (i < 2) {
        fake::run_on_stream(stream, work, {fake::WorkKind::kernel, "gemm", 0});
        fake::run_on_stream(stream, work, {fake::WorkKind::copy, "", 1024});
      }
      timer->end(lane, stream);
    }
    cudaDeviceSynchronize();
    const std::int64_t end = now_ns();
    timer->settle();

    for (std::size_t i : {0U, 1U, 3U}) {
      EXPECT_GE(stamps[i].begin_ns, begin);
      EXPECT_LE(stamps[i].end_ns, end);
      EXPECT_GE(stamps[i].end_ns - stamps[i].begin_ns, i == 3 ? 200'000 : 400'000);
    }
    EXPECT_GE(stamps[3].begin_ns, stamps[1].end_ns);  // one stream
    EXPECT_EQ(stamps[2].begin_ns, stamps[2].end_ns);
    const Activities works = timer->take_activities();
    ASSERT_EQ(works.all.size(), 5U);
    for (const Activity& activity : works.all) {
      const Stamp& stamp = stamps.at(static_cast<std::size_t>(activity.op));
      EXPECT_EQ(activity.step, step);
      EXPECT_LE(stamp.begin_ns, activity.begin_ns);
      EXPECT_LE(activity.end_ns, stamp.end_ns);
      EXPECT_LE(activity.launch_begin_ns, activity.begin_ns);
      EXPECT_EQ(works.names.at(static_cast<std::size_t>(activity.name)), activity.op == 3 ? "ncclDevKernel_AllGather"
                                                                         : activity.kind == Activity::Kind::kernel
                                                                             ? "gemm"
                                                                             : "Memcpy HtoD (Pinned -> Device)");
    }
  }
  for (const auto& [name, value] : timer->facts()) EXPECT_NE(name, "ops without times") << value;
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
