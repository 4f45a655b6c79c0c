// State in pinned host memory, on imagined GPUs: how it is copied, what goes wrong, and what CUDA forbids.

#include <mutex>
#include <thread>

#include "backend/copy_kernels.h"
#include "backend/cuda/emulated_support.h"

namespace fsdpbench::backend {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Backend> make_offloading() {
  return make_cuda_with([](int) { return std::make_unique<CopyKernels>(); });
}

class EmulatedCudaOffload : public testing::Test {
 protected:
  EmulatedCudaOffload() {
    options_.host_pool_bytes = 64 << 20;
    options_.offload_lanes = true;
  }
  void run(const Body& body) { make_offloading()->run(options_, body); }
  std::string failure(const Body& body) { return failure_of(&make_offloading, options_, body); }

  BackendOptions options_;
  FakeGpus gpus_{8};
};

/// The copies made while it lives, by bytes.
class SeenCopies {
 public:
  SeenCopies() {
    fake::observe([this](const fake::FinishedWork& work) {
      const std::lock_guard lock(mutex_);
      if (work.label.kind == fake::WorkKind::copy) bytes_.push_back(work.label.bytes);
    });
  }
  ~SeenCopies() { fake::observe({}); }
  std::vector<std::int64_t> bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::int64_t> bytes_;
};

TEST_F(EmulatedCudaOffload, ATransferIsOneCopyWithoutSlots) {
  constexpr std::int64_t kBytes = 40 << 20;  // ten slots
  run([](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const memory = device.allocate(kBytes, MemoryCategory::gradients, Lane::compute);
    std::byte* const host = device.allocate_host(kBytes, MemoryCategory::gradients, Lane::compute);
    device.synchronize();
    const SeenCopies copies;
    const std::int64_t pinned = fake::pinned_bytes(), pageable = fake::pageable_copies();
    device.enqueue(
        Lane::device_to_host, "down", [=](Kernels& kernels) { kernels.download(memory, host, kBytes); }, nullptr);
    device.enqueue(
        Lane::host_to_device, "up", [=](Kernels& kernels) { kernels.upload(host, memory, kBytes); }, nullptr);
    device.synchronize();
    EXPECT_EQ(copies.bytes(), (std::vector<std::int64_t>{kBytes, kBytes}));
    EXPECT_EQ(fake::pinned_bytes(), pinned) << "slots were made";
    EXPECT_EQ(fake::pageable_copies(), pageable);
  });
}

TEST_F(EmulatedCudaOffload, PageableMemoryGoesThroughSlots) {
  constexpr std::int64_t kBytes = 10 << 20;
  run([](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const host = device.allocate_host(kBytes, MemoryCategory::gradients, Lane::compute);
    const std::vector<std::byte> values(kBytes, std::byte{5});
    std::vector<std::byte> read(kBytes);
    const std::int64_t pageable = fake::pageable_copies();
    upload(device, Lane::compute, values, host);
    download(device, Lane::compute, host, read);
    device.synchronize();
    EXPECT_EQ(read, values);
    EXPECT_EQ(fake::pageable_copies(), pageable) << "CUDA stages those itself, and makes the host wait";
  });
}

TEST_F(EmulatedCudaOffload, APinnedCopyIsThereInTheOrderOfItsStream) {
  StuckOp stuck;
  run([&](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const memory = put(device, std::vector<float>{3.0F});
    std::byte* const host = device.allocate_host(4, MemoryCategory::gradients, Lane::device_to_host);
    float seen = 0;
    device.enqueue(
        Lane::device_to_host, "down", [=](Kernels& kernels) { kernels.download(memory, host, 4); }, nullptr);
    device.record(0, Lane::device_to_host);
    device.wait(Lane::host_compute, 0);
    device.enqueue(
        Lane::host_compute, "read", [&](Kernels&) { seen = *reinterpret_cast<const float*>(host); }, nullptr);
    device.record(1, Lane::host_compute);
    stuck.enqueue(rank, Lane::compute);  // which nobody here waits for
    device.host_wait(1);
    EXPECT_EQ(seen, 3.0F);
    stuck.release();
  });
}

TEST_F(EmulatedCudaOffload, OpsOfTheHostStampThemselves) {
  run([](RankContext& rank) {
    Stamp stamp;
    delay(rank.device, Lane::host_compute, kMillisecond, &stamp);
    rank.device.synchronize();
    EXPECT_GE(stamp.end_ns - stamp.begin_ns, kMillisecond) << "without settle_stamps(): no event of the GPU";
    const Stamp before = stamp;
    rank.device.settle_stamps();
    EXPECT_EQ(stamp.begin_ns, before.begin_ns);
  });
}

TEST_F(EmulatedCudaOffload, MoreThanTheHostLocksIsRefusedBeforeTheFirstOp) {
  options_.host_pool_bytes = std::int64_t{100} << 30;
  EXPECT_EQ(
      failure([](RankContext&) { FAIL() << "the body was called"; }),
      "rank 0 cannot have 100.00 GiB of page-locked host memory for what fsdp.cpu_offload keeps there: this host "
      "has too little that is free, or locks no more. Use fewer ranks on this host, a smaller model, or memory that "
      "is not shared with others");
}

TEST_F(EmulatedCudaOffload, WithoutKernelsForTheHostItsLaneIsRefused) {
  EXPECT_EQ(failure_of(&make_cuda, options_, [](RankContext& rank) { delay(rank.device, Lane::host_compute, 0); }),
            "rank 0, lane host_compute, op delay: this run has no lane that the host computes");
}

TEST_F(EmulatedCudaOffload, ALaunchThatFailsNamesTheOp) {
  EXPECT_EQ(failure([](RankContext& rank) {
              fake::fail_call("cudaLaunchHostFunc", cudaErrorInvalidValue);
              delay(rank.device, Lane::host_compute, 0);
            }),
            "rank 0, lane host_compute, op delay: cudaLaunchHostFunc: invalid argument (cudaErrorInvalidValue)");
}

TEST_F(EmulatedCudaOffload, AllPinnedMemoryIsGivenBackAlsoAfterAFailure) {
  const std::int64_t before = fake::pinned_bytes();
  run([](RankContext& rank) { rank.device.allocate_host(1 << 20, MemoryCategory::gradients, Lane::compute); });
  EXPECT_EQ(fake::pinned_bytes(), before);
  failure([](RankContext& rank) {
    rank.device.allocate_host(1 << 20, MemoryCategory::gradients, Lane::compute);
    delay(rank.device, Lane::host_compute, kMillisecond);
    throw std::runtime_error("on purpose");
  });
  EXPECT_EQ(fake::pinned_bytes(), before);
}

// The host's function may be called when the device has gone: a stream hung in front of it.
TEST_F(EmulatedCudaOffload, ATaskBehindWorkThatHangsNeverBegins) {
  options_.set<CudaOptions>().nccl.timeout_s = 0.05;
  StuckOp stuck;
  bool began = false;
  EXPECT_THAT(failure([&](RankContext& rank) {
                stuck.enqueue(rank, Lane::device_to_host);
                rank.device.record(0, Lane::device_to_host);
                rank.device.wait(Lane::host_compute, 0);
                rank.device.enqueue(
                    Lane::host_compute, "late", [&](Kernels&) { began = true; }, nullptr);
                try {
                  rank.device.synchronize();
                } catch (...) {
                  stuck.release();
                  throw;
                }
              }),
              HasSubstr("the oldest unfinished op is stuck on lane device_to_host"));
  EXPECT_FALSE(began);
}

TEST_F(EmulatedCudaOffload, TellsWhatItPinned) {
  run([](RankContext& rank) {
    EXPECT_THAT(fact(rank.device.facts(), "pinned host memory"), testing::StartsWith("64.00 MiB"));
    EXPECT_THAT(fact(rank.device.facts(), "host updates"), testing::StartsWith("by "));
  });
  options_.host_pool_bytes = 0;
  run([](RankContext& rank) { EXPECT_EQ(fact(rank.device.facts(), "pinned host memory"), ""); });
}

// The stand-in itself: what CUDA's documentation says of host functions, pinned memory and directions.
class HostStandIn : public testing::Test {
 protected:
  HostStandIn() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~HostStandIn() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  FakeGpus gpus_{2};
  cudaStream_t stream_ = nullptr;
};

TEST_F(HostStandIn, AHostFunctionRunsInOrderOnAnotherThreadAndMayNotCallCuda) {
  struct Called {
    std::thread::id thread;
    cudaError_t error = cudaSuccess;
    int value = 0;
  } seen;
  void* memory = nullptr;
  ASSERT_EQ(cudaHostAlloc(&memory, 4, cudaHostAllocPortable | cudaHostAllocMapped), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory, 1, 4, stream_), cudaSuccess) << "pinned memory may be filled in a stream's order";
  std::pair<Called*, void*> both{&seen, memory};
  const auto function = [](void* data) {
    auto& [what, from] = *static_cast<std::pair<Called*, void*>*>(data);
    what->thread = std::this_thread::get_id();
    what->value = *static_cast<int*>(from);
    void* more = nullptr;
    what->error = cudaMalloc(&more, 1);
  };
  ASSERT_EQ(cudaLaunchHostFunc(stream_, function, &both), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_NE(seen.thread, std::this_thread::get_id());
  EXPECT_EQ(seen.value, 0x01010101);
  EXPECT_EQ(seen.error, cudaErrorNotPermitted);
  EXPECT_EQ(cudaFreeHost(memory), cudaSuccess);
}

TEST_F(HostStandIn, NoTwoHostFunctionsRunAtOnce) {
  struct Count {
    std::atomic<int> now{0}, most{0};
  } count;
  const auto function = [](void* data) {
    auto& c = *static_cast<Count*>(data);
    c.most = std::max(c.most.load(), ++c.now);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --c.now;
  };
  cudaStream_t other = nullptr;
  cudaSetDevice(1);
  cudaStreamCreate(&other);
  for (int i = 0; i < 5; ++i) {
    cudaLaunchHostFunc(stream_, function, &count);
    cudaLaunchHostFunc(other, function, &count);
  }
  cudaStreamSynchronize(stream_);
  cudaStreamSynchronize(other);
  cudaStreamDestroy(other);
  cudaSetDevice(0);
  EXPECT_EQ(count.most, 1);
}

TEST_F(HostStandIn, ACopyMustGoWhereItSays) {
  void *device = nullptr, *pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 8), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 8), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, pinned, 8, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpyAsync(device, pinned, 8, cudaMemcpyDeviceToHost, stream_), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpyAsync(device, pinned, 8, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(pinned, device, 8, cudaMemcpyDefault, stream_), cudaSuccess);
  const std::int64_t before = fake::pageable_copies();
  double pageable = 0;
  EXPECT_EQ(cudaMemcpyAsync(device, &pageable, 8, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(fake::pageable_copies(), before + 1);
  EXPECT_EQ(cudaMemsetAsync(&pageable, 0, 8, stream_), cudaErrorInvalidValue);
  EXPECT_TRUE(fake::reaches(1, pinned));
  EXPECT_FALSE(fake::reaches(0, &pageable));
  cudaStreamSynchronize(stream_);
  cudaFree(device);
  cudaFreeHost(pinned);
  EXPECT_FALSE(fake::reaches(0, pinned));
}

}  // namespace
}  // namespace fsdpbench::backend
