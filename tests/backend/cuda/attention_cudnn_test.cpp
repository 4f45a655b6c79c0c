// Which attention cuDNN has kernels for, asked of cuDNN itself about GPUs that are only described. Nothing is computed.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <tuple>
#include <vector>

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

/// By its name cuDNN finds it again. A real driver does as well.
bool open_driver() {
  return dlopen(FSDPBENCH_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL) != nullptr ||
         dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr;
}

class CudnnChoice : public testing::TestWithParam<std::tuple<Gpu, std::int64_t>> {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(open_driver()) << dlerror(); }

  static void expect_kernels(const Gpu& gpu, const AttentionShape& shape) {
    SCOPED_TRACE(testing::Message() << shape.batch << " x " << shape.seq << ", heads " << shape.heads << " of "
                                    << shape.kv_heads);
    EXPECT_NO_THROW(CudnnGraph::forward(shape, gpu.version).check_support(gpu.properties()));
    for (const bool deterministic : {true, false}) {
      EXPECT_NO_THROW(CudnnGraph::backward(shape, gpu.version, deterministic).check_support(gpu.properties()));
    }
  }
};

TEST_P(CudnnChoice, HasKernelsForWhatTheRuleTakes) {
  const auto& [gpu, head_dim] = GetParam();
  const auto shape = [head = head_dim](std::int64_t seq, std::int64_t heads, std::int64_t kv_heads) {
    return AttentionShape{4, seq, heads, kv_heads, head, DType::bf16};
  };
  const auto backward_needs = [&gpu](const AttentionShape& s) {
    CudnnGraph::backward(s, gpu.version, true).check_support(gpu.properties());
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

TEST(CudnnGraphs, FindTokensWhereTheyLie) {
  const AttentionShape apart{4, 2048, 32, 8, 64, DType::bf16};
  const auto strides = [](std::int64_t row) {
    return testing::HasSubstr("\"stride\":[" + std::to_string(2048 * row) + ",64," + std::to_string(row) + ",1]");
  };
  const auto graphs = [](const AttentionShape& shape) {
    return std::vector{CudnnGraph::forward(shape, kGpus[2].version).text(),
                       CudnnGraph::backward(shape, kGpus[2].version, false).text()};
  };
  for (const std::string& text : graphs(apart)) {
    EXPECT_THAT(text, testing::AllOf(strides(32 * 64), strides(8 * 64)));
  }
}

TEST(CudnnGraphs, AskForAnOrderOfSumsOnlyIfItIsWanted) {
  const AttentionShape shape{4, 2048, 32, 8, 64, DType::bf16};
  const auto asked = [&](bool deterministic) {
    return CudnnGraph::backward(shape, kGpus[2].version, deterministic).text();
  };
  EXPECT_THAT(asked(true), testing::HasSubstr("\"is_deterministic_algorithm\":true"));
  EXPECT_THAT(asked(false), testing::HasSubstr("\"is_deterministic_algorithm\":false"));
}

/// Bytes that cuDNN 9.19 wants for an H200; another cuDNN may want others.
TEST(CudnnWorkspaces, AreThoseOfTheTable) {
  ASSERT_TRUE(open_driver()) << dlerror();
  const Gpu& h200 = kGpus[2];
  const auto bytes = [&](CudnnGraph graph) {
    graph.build_for(h200.properties());
    return graph.workspace_bytes();
  };
  struct Row {
    std::int64_t batch, seq, any_order, fixed_order;
  };
  for (const auto& [batch, seq, any_order, fixed_order] : {Row{1, 2048, 33'816'832, 285'475'072},
                                                           {4, 2048, 135'266'560, 1'141'899'520},
                                                           {1, 4096, 67'633'408, 1'107'820'800}}) {
    const AttentionShape shape{batch, seq, 32, 8, 64, DType::bf16};
    const std::int64_t forward = bytes(CudnnGraph::forward(shape, h200.version));
    const std::int64_t any = bytes(CudnnGraph::backward(shape, h200.version, false));
    const std::int64_t fixed = bytes(CudnnGraph::backward(shape, h200.version, true));
    EXPECT_LE(forward, 64 << 10) << batch << " x " << seq;
    EXPECT_GE(fixed, batch * shape.heads * seq * seq * 2) << "all scores are written down";
    EXPECT_LT(any, fixed / 4);
    if (cudnn_version() != "cuDNN 9.19.0") continue;
    EXPECT_EQ(any, any_order) << batch << " x " << seq;
    EXPECT_EQ(fixed, fixed_order) << batch << " x " << seq;
  }
}

TEST(CudnnVersion, IsTheLoadedLibrarys) { EXPECT_THAT(cudnn_version(), testing::StartsWith("cuDNN 9.")); }

}  // namespace
}  // namespace fsdpbench::backend::cuda
