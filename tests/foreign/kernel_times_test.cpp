// Where the time of kernels goes.
#include "foreign/kernel_times.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "foreign/explain.h"
#include "foreign/kineto_names.h"
#include "foreign/kineto_reader.h"
#include "foreign/recognise.h"
#include "foreign/recorded_jobs.h"

namespace fsdpbench::foreign {
namespace {

using schedule::Phase;
using ::testing::Optional;

KernelKind kind_by_name(const std::string& name, std::optional<Phase> phase = std::nullopt) {
  return kernel_kind(Activity::computation, name, phase);
}

TEST(KernelTimes, NamesTellKinds) {
  using enum KernelKind;
  const std::map<std::string, KernelKind> kinds{
      {"nvjet_hsh_128x128_64x4_1x2_h_bz_coopA_TNT", products},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", products},
      {"void cutlass::Kernel<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(Params)", products},
      {"Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1_SN", products},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", products},
      {"aten::addmm", products},
      {"void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >()",
       attention},
      {"fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", attention},
      {"attn_fwd.kd", attention},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)>()",
       elementwise},
      {"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, true>(int)", elementwise},
      {"void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>(float*)", elementwise},
      {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", elementwise},
      {"triton_poi_fused_mul_silu_1", elementwise},
      {"void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >()", optimizer},
      {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)", copies},
      {"void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**)", copies},
      {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>()", copies},
      {"forward 3", other},
      {"my_kernel(int)", other},
  };
  for (const auto& [name, kind] : kinds) EXPECT_EQ(to_string(kind_by_name(name)), to_string(kind)) << name;
  // An optimizer without a fused kernel multiplies and adds like others.
  EXPECT_EQ(kind_by_name("void at::native::vectorized_elementwise_kernel<4, MulFunctor>()", Phase::optimizer),
            optimizer);
  EXPECT_EQ(kind_by_name("void direct_copy_kernel_cuda()", Phase::optimizer), copies);
  EXPECT_EQ(kernel_kind(Activity::collective, "ncclDevKernel_AllGather", {}), communication);
  EXPECT_EQ(kernel_kind(Activity::copy, "Memcpy HtoD", {}), copies);
  EXPECT_EQ(kernel_kind(Activity::fill, "Memset (Device)", {}), copies);
}

/// Recorded jobs of PyTorch: what the kinds have is exactly what the rows have.
TEST(KernelTimes, KindsAddUpToAllRowsOfTheSteps) {
  for (const auto& folder : recorded_jobs()) {
    const JobTrace job = read_job({folder.string()});
    const Recognition found = recognise(job);
    const KernelTimes times = find_kernel_times(job, found);
    std::int64_t rows_ns = 0, kinds_ns = 0;
    std::size_t rows = 0, launches = 0;
    for (std::size_t r = 0; r < job.ranks.size(); ++r) {
      for (const JobStep& step : found.ranks[r].cut.steps) {
        for (const std::int32_t i : step.device) {
          const DeviceRow& row = job.ranks[r].device[i];
          rows_ns += row.end_ns - row.begin_ns;
          ++rows;
        }
      }
    }
    std::map<KernelKind, std::int64_t> by_kind;
    for (const KernelSum& kind : times.by_kind) {
      kinds_ns += kind.ns;
      launches += kind.launches;
      by_kind[kind.kind] = kind.ns;
    }
    EXPECT_EQ(times.ns, rows_ns) << folder;
    EXPECT_EQ(kinds_ns, rows_ns) << folder;
    EXPECT_EQ(launches, rows) << folder;
    EXPECT_GT(by_kind[KernelKind::products], 0) << folder;
    ASSERT_FALSE(times.top.empty()) << folder;
    EXPECT_LE(times.top.size(), kMostKernels);
    EXPECT_TRUE(std::ranges::is_sorted(times.top, std::greater<>(), &KernelSum::ns));
  }
}

}  // namespace
}  // namespace fsdpbench::foreign
