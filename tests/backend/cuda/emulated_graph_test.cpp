// Graphs of the CUDA device on imagined GPUs: what of a capture each launch does, and what goes wrong there.

#include <utility>

#include "backend/cuda/emulated_support.h"
#include "backend/cuda/fake/nccl/fake_nccl.h"
#include "base/clock.h"

namespace fsdpbench::backend {
namespace {

using ::testing::HasSubstr;

template <class Work>
Device::Graph capture_graph(Device& device, const Work& work) {
  device.begin_capture();
  work();
  return device.end_capture();
}
void launch_graph(Device& device, Device::Graph graph) {
  device.launch(graph, false);
  device.synchronize();
}

class EmulatedCudaGraph : public testing::Test {
 protected:
  EmulatedCudaGraph() {
    options_.set<CudaOptions>().graphs = true;
    options_.pool_bytes = 1 << 20;
    fake::nccl::reset();
  }
  ~EmulatedCudaGraph() override { fake::nccl::reset(); }
  void run(const Body& body) {
    make_cuda()->run(options_, body);
    EXPECT_EQ(fake::nccl::misuses(), "");
  }
  std::string failure(const Body& body) { return failure_of(&make_cuda, options_, body); }

  BackendOptions options_;
  FakeGpus gpus_{8};
};

TEST_F(EmulatedCudaGraph, ALaunchUploadsWhatIsThereThen) {
  run([](RankContext& rank) {
    std::byte* const block = rank.device.allocate(8, MemoryCategory::gradients, Lane::copy);
    std::vector<float> values{1.0F, 2.0F};
    const Device::Graph graph = capture_graph(rank.device, [&] { upload(rank.device, Lane::copy, values, block); });
    for (const float value : {3.0F, 4.0F}) {
      values[0] = value;
      launch_graph(rank.device, graph);
      EXPECT_EQ(get<float>(rank.device, block, 2), (std::vector<float>{value, 2.0F}));
    }
    EXPECT_THAT(fact(rank.device.facts(), "graphs"),
                testing::MatchesRegex("steps are launched as one graph of 1 nodes, captured in .* ms; 2 launches, "
                                      "each .* us of the host's time"));
    rank.device.free(block, Lane::copy);
  });
}

TEST_F(EmulatedCudaGraph, LanesWaitForEachOtherInALaunchAndForNothingBefore) {
  run([](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const block = device.allocate(4, MemoryCategory::gradients, Lane::compute);
    const std::vector<float> first{1.0F};
    const std::vector<float> second{2.0F};
    device.record(1, Lane::all_gather);
    device.synchronize();
    const Device::Graph graph = capture_graph(device, [&] {
      device.wait(Lane::compute, 1);  // of before: complete
      delay(device, Lane::copy, 5 * kMillisecond);
      upload(device, Lane::copy, first, block);
      device.record(0, Lane::copy);
      device.wait(Lane::compute, 0);
      upload(device, Lane::compute, second, block);
      device.record(1, Lane::compute);
    });
    launch_graph(device, graph);
    EXPECT_EQ(get<float>(device, block, 1), second);
    device.wait(Lane::copy, 1);  // of a launch that was waited for
    device.host_wait(1);
    upload(device, Lane::copy, first, block);
    device.record(1, Lane::copy);
    device.host_wait(1);
    EXPECT_EQ(get<float>(device, block, 1), first);
    device.free(block, Lane::copy);
  });
}

TEST_F(EmulatedCudaGraph, StampsAreOfEachLaunchThatAsksForThem) {
  run([](RankContext& rank) {
    Device& device = rank.device;
    Stamp stamp;
    const Device::Graph graph =
        capture_graph(device, [&] { delay(device, Lane::all_gather, 3 * kMillisecond, &stamp); });
    launch_graph(device, graph);
    device.settle_stamps();
    EXPECT_EQ(stamp.end_ns, 0) << "nobody asked";
    for (int step = 0; step < 3; ++step) {
      const std::int64_t before = now_ns();
      device.launch(graph, true);
      device.synchronize();
      device.settle_stamps();
      EXPECT_GE(stamp.begin_ns, before);
      EXPECT_LE(stamp.end_ns, now_ns());
      EXPECT_GE(stamp.end_ns - stamp.begin_ns, 3 * kMillisecond - 1000);
    }
    EXPECT_THAT(fact(device.facts(), "timer"), HasSubstr("CUDA events around each op"));
    EXPECT_THAT(fact(device.facts(), "no CUPTI"), HasSubstr("of a graph that is one thing"));
  });
}

TEST_F(EmulatedCudaGraph, BlocksLieWhereTheBookkeepingPutsThem) {
  run([](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const a = device.allocate(1024, MemoryCategory::gradients, Lane::compute);
    std::byte* const b = device.allocate(512, MemoryCategory::activations, Lane::compute);
    EXPECT_EQ(b, a + 1024) << "one region for all categories";
    device.free(a, Lane::compute);
    EXPECT_EQ(device.allocate(512, MemoryCategory::optimizer, Lane::compute), a);
    EXPECT_THROW(device.allocate(1 << 20, MemoryCategory::optimizer, Lane::compute), ResourceError);
    EXPECT_EQ(fact(device.facts(), "pool reserved at most"), "1.00 MiB, one region, all of it before the first op");
  });
}

TEST_F(EmulatedCudaGraph, OtherMemoryThanAtTheCaptureIsAnError) {
  EXPECT_THAT(failure([](RankContext& rank) {
                const Device::Graph graph = capture_graph(rank.device, [&] { delay(rank.device, Lane::compute, 0); });
                rank.device.allocate(8, MemoryCategory::gradients, Lane::compute);
                rank.device.launch(graph, false);
              }),
              HasSubstr("what is allocated is not what was when the capture began"));
}

TEST_F(EmulatedCudaGraph, TheHostWaitsForNothingInACapture) {
  EXPECT_THAT(failure([](RankContext& rank) {
                rank.device.begin_capture();
                rank.device.synchronize();
              }),
              HasSubstr("nothing runs during a capture"));
  EXPECT_THAT(failure([](RankContext& rank) {
                rank.device.begin_capture();
                rank.device.host_wait(0);
              }),
              HasSubstr("nothing runs during a capture"));
  EXPECT_THAT(failure([](RankContext& rank) {
                std::byte* const block = rank.device.allocate(8, MemoryCategory::gradients, Lane::compute);
                std::vector<float> values(2);
                rank.device.begin_capture();
                download(rank.device, Lane::compute, block, values);
              }),
              HasSubstr("a download cannot be captured"));
}

TEST_F(EmulatedCudaGraph, ScratchDoesNotGrowInACapture) {
  EXPECT_THAT(failure([](RankContext& rank) {
                auto* const block = rank.device.allocate(64, MemoryCategory::gradients, Lane::compute);
                rank.device.begin_capture();
                rank.device.enqueue(
                    Lane::compute, "norm",
                    [block](Kernels& kernels) {
                      kernels.sum_of_squares(reinterpret_cast<float*>(block), 8, 1.0,
                                             reinterpret_cast<double*>(block + 32), true);
                    },
                    nullptr);
              }),
              HasSubstr("scratch of kernels must not grow during a capture"));
}

TEST_F(EmulatedCudaGraph, ALaunchThatHangsEndsAndIsNamed) {
  options_.set<CudaOptions>().nccl.timeout_s = 0.05;
  StuckOp stuck;
  EXPECT_EQ(failure([&](RankContext& rank) {
              const Device::Graph graph = capture_graph(rank.device, [&] { stuck.enqueue(rank, Lane::copy); });
              rank.device.set_op(7, -1);
              try {
                launch_graph(rank.device, graph);
              } catch (...) {
                stuck.release();
                throw;
              }
            }),
            "rank 0: nothing has completed on its GPU for 0.05 s; the oldest unfinished op is the step as one graph "
            "(step 7) on lane compute");
}

TEST_F(EmulatedCudaGraph, ALaunchThatCudaRefusesIsNamed) {
  EXPECT_EQ(failure([](RankContext& rank) {
              const Device::Graph graph = capture_graph(rank.device, [&] { delay(rank.device, Lane::copy, 0); });
              fake::fail_call("cudaGraphLaunch", cudaErrorInvalidValue);
              rank.device.launch(graph, false);
            }),
            "rank 0, lane compute, op the step as one graph: launching a graph: invalid argument "
            "(cudaErrorInvalidValue)");
}

/// Sums over two ranks on two lanes, first as they are, then as a graph.
void sum_twice(RankContext& rank, int launches) {
  Device& device = rank.device;
  std::byte* const block = device.allocate(4, MemoryCategory::gradients, Lane::compute);
  const std::vector<float> one{1.0F};
  const auto work = [&] {
    upload(device, Lane::all_reduce, one, block);
    rank.world.all_reduce(Lane::all_reduce, block, 1, DType::f32, 1.0F, nullptr);
    device.record(0, Lane::all_reduce);
    device.wait(Lane::tensor, 0);
    rank.world.all_reduce(Lane::tensor, block, 1, DType::f32, 1.0F, nullptr);
  };
  work();
  device.synchronize();
  const Device::Graph graph = capture_graph(device, work);
  for (int i = 0; i < launches; ++i) {
    launch_graph(device, graph);
    EXPECT_EQ(get<float>(device, block, 1), std::vector<float>{4.0F});
  }
  device.free(block, Lane::tensor);
}

TEST_F(EmulatedCudaGraph, CollectivesAreThoseOfEachLaunch) {
  options_.ranks = 2;
  for (const bool blocking : {false, true}) {
    options_.set<CudaOptions>().nccl.blocking = blocking;
    run([](RankContext& rank) { sum_twice(rank, 3); });
  }
}

TEST_F(EmulatedCudaGraph, AFailureOfNcclInALaunchEndsAllRanks) {
  options_.ranks = 2;
  fake::nccl::fail_op(1, 5, ncclRemoteError, "the peer is gone");  // two plain ones, two of the first launch
  EXPECT_THAT(failure([](RankContext& rank) { sum_twice(rank, 3); }), HasSubstr("the peer is gone"));
  EXPECT_EQ(fake::nccl::misuses(), "");
  EXPECT_EQ(fake::nccl::counts().aborted, 2);
}

TEST_F(EmulatedCudaGraph, ARankThatFailsDuringItsCaptureStopsTheOthers) {
  options_.ranks = 2;
  EXPECT_THAT(failure([](RankContext& rank) {
                if (rank.rank == 0) sum_twice(rank, 1000);
                sum_twice(rank, 1);
                rank.device.begin_capture();
                delay(rank.device, Lane::copy, 0);
                throw std::runtime_error("on purpose");
              }),
              HasSubstr("on purpose"));
  EXPECT_EQ(fake::nccl::misuses(), "");
}

}  // namespace
}  // namespace fsdpbench::backend
