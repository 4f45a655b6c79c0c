// Which attention cuDNN has kernels for, asked of cuDNN itself about GPUs that are only described. Nothing is computed.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <tuple>

#include "backend/cuda/kernels/attention_cudnn.h"
#include "backend/cuda/kernels/cudnn_graph.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

struct Gpu {
  const char* name;
  int version;  ///< compute capability, times 10
  int multiprocessors;
  int shared_memory;  ///< bytes that a block may ask for
  std::int64_t memory = 80'000'000'000;
  int memory_khz = 2'619'000;
  int l2_bytes = 50 << 20;

  std::string properties() const {
    return R"({"deviceVer":)" + std::to_string(version * 10) + R"(,"driverVer":13000,"cudaDeviceId":0,)" +
           R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)" +
           R"("multiProcessorCount":)" + std::to_string(multiprocessors) + R"(,"warpSize":32,)" +
           R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)" + std::to_string(shared_memory) +
           R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)" +
           R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)" +
           R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":)" + std::to_string(memory_khz) +
           R"(,"l2CacheSize":)" + std::to_string(l2_bytes) + R"(,"deviceName":")" + name + R"(","totalGlobalMem":)" +
           std::to_string(memory) + "}";
  }
};
void PrintTo(const Gpu& gpu, std::ostream* out) { *out << gpu.name; }

constexpr Gpu kGpus[] = {{"A100", 80, 108, 166912},
                         {"H100", 90, 132, 232448},
                         {"NVIDIA_H200", 90, 132, 232448, 150'754'820'096, 3'201'000, 60 << 20},
                         {"B200", 100, 148, 232448}};

class CudnnChoice : public testing::TestWithParam<std::tuple<Gpu, std::int64_t>> {
 protected:
  static void SetUpTestSuite() {
    // By its name cuDNN finds it again. A real driver does as well.
    const bool found = dlopen(FSDPBENCH_CUDA_DRIVER_STUB, RTLD_NOW | RTLD_GLOBAL) != nullptr ||
                       dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr;
    ASSERT_TRUE(found) << dlerror();
  }

  static void expect_kernels(const Gpu& gpu, const AttentionShape& shape) {
    SCOPED_TRACE(testing::Message() << shape.batch << " x " << shape.seq << ", heads " << shape.heads << " of "
                                    << shape.kv_heads);
    EXPECT_NO_THROW(CudnnGraph::forward(shape, gpu.version).check_support(gpu.properties()));
    EXPECT_NO_THROW(CudnnGraph::backward(shape, gpu.version).check_support(gpu.properties()));
  }
};

TEST_P(CudnnChoice, HasKernelsForWhatTheRuleTakes) {
  const auto& [gpu, head_dim] = GetParam();
  const auto shape = [head = head_dim](std::int64_t seq, std::int64_t heads, std::int64_t kv_heads) {
    return AttentionShape{4, seq, heads, kv_heads, head, DType::bf16};
  };
  const auto backward_needs = [&gpu](const AttentionShape& s) {
    CudnnGraph::backward(s, gpu.version).check_support(gpu.properties());
  };
  EXPECT_THROW(backward_needs(shape(1, 2, 2)), BackendError);
  if (!cudnn_takes(shape(2048, 16, 16), gpu.version / 10)) {
    EXPECT_THROW(backward_needs(shape(2048, 16, 16)), BackendError);
    return;
  }
  expect_kernels(gpu, shape(2048, 16, 16));
  expect_kernels(gpu, shape(2048, 32, 8));  // profiles/runs/gpu-1b.toml, heads of 64
  expect_kernels(gpu, shape(4096, 32, 8));
  expect_kernels(gpu, shape(300, 6, 1));
  expect_kernels(gpu, shape(17, 4, 2));
  expect_kernels(gpu, shape(2, 2, 2));
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudnnChoice,
                         testing::Combine(testing::ValuesIn(kGpus), testing::Values(8, 20, 64, 96, 128, 136, 256, 264)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_head_" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST(CudnnGraphs, NameTheShapeTheyCannotCompute) {
  const AttentionShape odd{2, 64, 4, 2, 20, DType::bf16};
  EXPECT_THAT([&] { CudnnGraph::forward(odd, kGpus[1].version).check_support(kGpus[1].properties()); },
              testing::ThrowsMessage<BackendError>(testing::StartsWith(
                  "cuDNN cannot compute the forward of attention over 2 samples of 64 tokens with 4 query and 2 key "
                  "heads of size 20: ")));
}

TEST(CudnnVersion, IsTheLoadedLibrarys) { EXPECT_THAT(cudnn_version(), testing::StartsWith("cuDNN 9.")); }

}  // namespace
}  // namespace fsdpbench::backend::cuda
