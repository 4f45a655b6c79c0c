// Who gets which GPU, and what the CUDA backend refuses.

#include <chrono>
#include <future>
#include <thread>

#include "backend/cpu_processes.h"
#include "backend/cuda/emulated_support.h"
#include "backend/cuda/gpu_team.h"

namespace fsdpbench::backend {
namespace {

using ::testing::HasSubstr;

std::string refusal(const BackendOptions& options) {
  return failure_of(&make_cuda, options, [](RankContext&) { FAIL() << "the body was called"; });
}

std::string why_no_backend() {
  try {
    make_cuda();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "(nothing was thrown)";
}

TEST(EmulatedCudaTeam, WithoutADriverOneSentence) {
  const FakeGpus gpus(-1);
  EXPECT_EQ(
      why_no_backend(),
      "The cuda backend needs NVIDIA's driver, and this machine has none; device.backend = \"cpu\" works everywhere.");
}

TEST(EmulatedCudaTeam, WithoutAGpuOneSentence) {
  const FakeGpus gpus(0);
  EXPECT_EQ(
      why_no_backend(),
      "The cuda backend needs a GPU, and this process sees none (CUDA_VISIBLE_DEVICES may hide it); device.backend = "
      "\"cpu\" works everywhere.");
}

TEST(EmulatedCudaTeam, AnotherErrorOfCudaIsPassedOn) {
  const FakeGpus gpus(1);
  fake::fail_call("cudaGetDeviceCount", cudaErrorIllegalAddress);
  EXPECT_EQ(why_no_backend(),
            "The cuda backend cannot be used: an illegal memory access was encountered (cudaErrorIllegalAddress).");
}

TEST(EmulatedCudaTeam, ThreadsDoNotShareGpus) {
  const FakeGpus gpus(2);
  BackendOptions options;
  options.ranks = 3;
  EXPECT_EQ(refusal(options),
            "3 ranks in one process need 3 GPUs, and this process sees 2: choose at most 2 with --ranks, or start one "
            "process a rank (mpirun -n 3 fsdpbench ...), which may share a GPU where nothing is to be measured.");
}

TEST(EmulatedCudaTeam, EmulationNeedsTheCpuBackend) {
  const FakeGpus gpus(1);
  BackendOptions link;
  link.set<CpuOptions>().link = LinkModel{.bytes_per_second = 1e9, .latency_seconds = 0};
  BackendOptions slow;
  slow.set<CpuOptions>().compute_slowdown = {2.0};
  for (const BackendOptions& options : {link, slow}) {
    EXPECT_THAT(refusal(options), HasSubstr("The cuda backend takes the time that the hardware takes"));
  }
}

TEST(EmulatedCudaTeam, EachThreadHasItsGpu) {
  const FakeGpus gpus(4);
  BackendOptions options;
  options.ranks = 4;
  make_cuda()->run(options, [](RankContext& rank) {
    EXPECT_EQ(fake::device_of(lanes_of(rank).stream(Lane::compute)), rank.rank);
    EXPECT_EQ(fake::device_of(nullptr), rank.rank);
  });
}

TEST(EmulatedCudaTeam, ThreadsThatDoNotEndAfterAFailureEndTheProcess) {
  const FakeGpus gpus(2);
  BackendOptions options;
  options.ranks = 2;
  const auto said = std::make_shared<std::promise<std::string>>();
  cuda::GpuTeam team(options, 2,
                     {std::chrono::milliseconds(1), [said](const std::string& words) { said->set_value(words); }});
  for (const char* const failure : {"the first", "the second"}) {
    team.fail(std::make_exception_ptr(BackendError(failure)));  // and nobody ends
  }
  EXPECT_EQ(said->get_future().get(),
            "the first; 0.001 s later ranks of this process are still stuck in CUDA or NCCL: it ends now.");
}

TEST(EmulatedCudaTeam, ThreadsThatEndAfterAFailureAreLeftInPeace) {
  const FakeGpus gpus(2);
  BackendOptions options;
  options.ranks = 2;
  const auto said = std::make_shared<std::atomic<bool>>(false);
  {
    cuda::GpuTeam team(options, 2, {std::chrono::seconds(30), [said](const std::string&) { said->store(true); }});
    team.fail(std::make_exception_ptr(BackendError("on purpose")));
  }
  while (said.use_count() > 1) std::this_thread::yield();  // the guard's thread has ended
  EXPECT_FALSE(said->load());
}

/// The CUDA backend with a session for each rank.
class CudaProcesses : public Backend {
 public:
  std::string name() const override { return "cuda"; }
  Facts facts() const override { return facts_; }
  void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) override {
    run_sessions(options.ranks, [&](launch::Session& session) {
      BackendOptions mine = options;
      mine.session = &session;
      cuda::CudaBackend backend;
      backend.run(mine, body);
      if (session.placement().rank == 0) facts_ = backend.facts();
    });
  }

 private:
  Facts facts_;
};

class EmulatedCudaProcesses : public testing::Test {
 protected:
  ~EmulatedCudaProcesses() override {
    unsetenv("NCCL_HOSTID");
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  }
};

void add_up(RankContext& rank) {
  std::byte* buffer = put(rank.device, std::vector<float>{1.0F, static_cast<float>(rank.rank)});
  rank.world.all_reduce(Lane::all_reduce, buffer, 2, DType::f32, 1.0F, nullptr);
  EXPECT_EQ(get<float>(rank.device, buffer, 2), (std::vector<float>{3.0F, 3.0F}));
}

TEST_F(EmulatedCudaProcesses, EachHasAGpuOfItsOwn) {
  const FakeGpus gpus(4);
  BackendOptions options;
  options.ranks = 3;
  CudaProcesses backend;
  backend.run(options, [](RankContext& rank) {
    EXPECT_EQ(fake::device_of(nullptr), rank.rank);
    add_up(rank);
  });
  EXPECT_EQ(fact(backend.facts(), "ranks"), "one process each, a GPU each");
  EXPECT_EQ(std::getenv("NCCL_HOSTID"), nullptr);
}

TEST_F(EmulatedCudaProcesses, ShareGpusWhereThereAreTooFewAndSaySo) {
  const FakeGpus gpus(2);
  BackendOptions options;
  options.ranks = 3;
  CudaProcesses backend;
  backend.run(options, [](RankContext& rank) {
    EXPECT_EQ(fake::device_of(nullptr), rank.rank % 2);
    add_up(rank);
  });
  EXPECT_EQ(fact(backend.facts(), "ranks"), "one process each; ranks share a GPU: functional only, never rated");
  EXPECT_NE(std::getenv("NCCL_HOSTID"), nullptr);
}

TEST_F(EmulatedCudaProcesses, AFailureOfOneEndsAllWithItsMessage) {
  const FakeGpus gpus(4);
  BackendOptions options;
  options.ranks = 3;
  EXPECT_EQ(failure_of([]() -> std::unique_ptr<Backend> { return std::make_unique<CudaProcesses>(); }, options,
                       [](RankContext& rank) {
                         std::byte* buffer = reserve<float>(rank.device, 8);
                         if (rank.rank == 1) throw std::runtime_error("rank 1 on purpose");
                         rank.world.all_reduce(Lane::all_reduce, buffer, 8, DType::f32, 1.0F, nullptr);
                         rank.device.synchronize();
                       }),
            "rank 1 on purpose");
}

}  // namespace
}  // namespace fsdpbench::backend
