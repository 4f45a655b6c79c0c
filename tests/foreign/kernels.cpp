#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "foreign/dialect.h"

namespace fsdpbench::foreign::corpus {
namespace {

using schedule::OpKind;

std::string product_name(Vendor vendor, const plan::Product& product, bool bf16, int which) {
  constexpr std::array<int, 3> kTiles{64, 128, 256};
  const int tile = kTiles[(product.n / 512 + product.m / 512 + which) % 3];
  if (vendor == Vendor::amd) {
    return fmt::format("Cijk_Alik_Bljk_{}_MT{}x128x32_MI16x16x16x1_SN_GRVW8_GSU1_WG64_4_1", bf16 ? "BBS_BH" : "SB",
                       tile);
  }
  if (!bf16) return fmt::format("ampere_sgemm_{}x64_tn", tile);
  if (vendor == Vendor::nvidia_old) {
    return fmt::format("ampere_bf16_s16816gemm_bf16_{}x128_ldg8_f2f_stages_64x3_tn", tile);
  }
  return which % 2 == 0 ? fmt::format("nvjet_hsh_{}x128_64x4_1x2_h_bz_coopA_TNT", tile)
                        : fmt::format(
                              "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{}x128x64_warpgroupsize1x1x1_"
                              "execute_segment_k_off_kernel__5x_cublas",
                              tile);
}

std::string elementwise(std::string_view functor) {
  return fmt::format(
      "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul> >(int, "
      "at::native::{}, std::array<char*, 3ul>)",
      functor, functor);
}

std::string foreach_kernel(std::string_view functor) {
  return fmt::format(
      "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
      "namespace)::TensorListMetadata<2>, {}>({})",
      functor, functor);
}

std::string attention_name(Vendor vendor, bool backward) {
  if (vendor == Vendor::amd) return backward ? "ck_tile::FmhaBwdDQDKDVKernel<bf16, 128>" : "attn_fwd.kd";
  return backward ? "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, "
                    "128, 8, 4, 2, 2, true, false> >(pytorch_flash::Flash_bwd_params)"
                  : "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
                    "cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)";
}

void compute(const Dialect& dialect, const plan::ModuleWork& work, bool backward, bool bf16,
             std::vector<Kernel>& kernels) {
  const auto node = [&](std::string name) { return backward ? name : std::string(); };
  const bool compiled = dialect.framework == Framework::compiled;
  double flops = work.attention.flops();
  for (const plan::Product& product : work.products) flops += product.flops();
  flops = std::max(flops, 1.0);
  const auto small = [&](std::string op, std::string name, std::string autograd) {
    kernels.push_back({std::move(op), std::move(name), 0.02 * flops, "kernel", node(std::move(autograd))});
  };
  if (work.kind == plan::ModuleKind::embedding) {
    small(backward ? "aten::embedding_dense_backward" : "aten::embedding",
          backward
              ? "void at::native::(anonymous namespace)::compute_grad_weight<float, int>(int*, float*)"
              : "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, "
                "true>(at::cuda::detail::TensorInfo<float, unsigned int>)",
          "EmbeddingBackward0");
    return;
  }
  const auto norm = [&] {
    small(compiled ? "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0" : "aten::_fused_rms_norm",
          compiled ? "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0"
          : backward
              ? "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>(int)"
              : "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, true>(int, float)",
          "FusedRmsNormBackward0");
  };
  if (!backward) norm();
  int which = 0;
  for (const plan::Product& product : work.products) {
    const int launches = static_cast<int>(std::clamp<std::int64_t>(product.count, 1, 4)) * (backward ? 2 : 1);
    for (int i = 0; i < launches; ++i, ++which) {
      kernels.push_back({"aten::mm", product_name(dialect.vendor, product, bf16, which), product.flops() / launches,
                         "kernel", node("MmBackward0")});
    }
    if (which == 2 && work.attention.heads > 0) {
      kernels.push_back({backward ? "aten::_flash_attention_backward" : "aten::_flash_attention_forward",
                         attention_name(dialect.vendor, backward), work.attention.flops(), "kernel",
                         node("ScaledDotProductFlashAttentionBackward0")});
    }
  }
  small(compiled ? "triton_poi_fused_mul_silu_1" : "aten::silu",
        compiled ? "triton_poi_fused_mul_silu_1"
                 : elementwise(backward ? "silu_backward_kernel(at::TensorIteratorBase&)"
                                        : "silu_kernel(at::TensorIteratorBase&)"),
        "SiluBackward0");
  small("aten::add", elementwise("CUDAFunctor_add<c10::BFloat16>"), "AddBackward0");
  if (backward) norm();
  if (work.kind == plan::ModuleKind::head) {
    small("aten::_log_softmax",
          "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, float>(float*)",
          "NllLossBackward0");
  }
}

}  // namespace

std::vector<Kernel> kernels_of(const Dialect& dialect, const schedule::Op& op, const plan::ModuleWork* work,
                               bool bf16) {
  std::vector<Kernel> kernels;
  const auto one = [&](std::string aten, std::string name, std::string category = "kernel") {
    kernels.push_back({std::move(aten), std::move(name), 1, std::move(category), ""});
  };
  switch (op.kind) {
    case OpKind::load_batch: one("aten::copy_", "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy"); break;
    case OpKind::cast_replicated:
    case OpKind::cast_shard:
    case OpKind::reduce_cast:
      one("aten::copy_",
          "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda("
          "at::TensorIteratorBase&)::{lambda()#3}, std::array<char*, 2ul>, 4>(int)");
      break;
    case OpKind::copy_in:
      one("fsdp::all_gather_copy_in",
          foreach_kernel("at::native::(anonymous namespace)::CopyFunctor<float, float, 2, 1, 1>"));
      break;
    case OpKind::copy_out:
      one("fsdp::split_with_sizes_copy",
          "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(char**, char**, "
          "long*, long*, long*, long, long)");
      break;
    case OpKind::reduce_copy_in:
      one("fsdp::chunk_cat",
          "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, float>(float**, "
          "float*, long*, long*, long*, long, long, long, long)");
      break;
    case OpKind::keep_group_shard: one("aten::clone", "Memcpy DtoD (Device -> Device)", "gpu_memcpy"); break;
    case OpKind::accumulate_gradients: one("aten::add_", elementwise("CUDAFunctor_add<float>")); break;
    case OpKind::finish_gradient: one("aten::add_", elementwise("CUDAFunctorOnSelf_add<float>")); break;
    case OpKind::gradient_norm:
      one("aten::_foreach_norm",
          foreach_kernel(
              "at::native::(anonymous namespace)::LpNormFunctor<float, (at::native::NormType)1, float, 1, 1, 0>"));
      break;
    case OpKind::clip:
      one("aten::_foreach_mul_",
          foreach_kernel("at::native::(anonymous namespace)::BinaryOpScalarTensorFunctor<float, 1, 1, 0>"));
      break;
    case OpKind::optimizer:
      one("aten::_fused_adamw_",
          foreach_kernel(
              "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>"));
      break;
    case OpKind::forward:
    case OpKind::recompute:
    case OpKind::backward:
      if (work != nullptr) compute(dialect, *work, op.kind == OpKind::backward, bf16, kernels);
      break;
    default: break;
  }
  if (kernels.empty() && op.has_work() && !op.is_collective()) one("aten::copy_", elementwise("FillFunctor<float>"));
  return kernels;
}

std::string collective_kernel(const Dialect& dialect, OpKind kind, DType dtype) {
  if (dialect.vendor == Vendor::amd) return "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)";
  const bool bf16 = dtype == DType::bf16;
  const bool old = dialect.vendor == Vendor::nvidia_old;
  const std::string sum = old ? (bf16 ? "Sum___nv_bfloat16" : "Sum_float") : (bf16 ? "Sum_bf16" : "Sum_f32");
  const auto name = [&](std::string_view what, bool reduces) {
    if (old) {
      return fmt::format("ncclKernel_{}_RING_LL_{}(ncclDevComm*, unsigned long, ncclWork*)", what,
                         reduces ? sum : "Sum_int8_t");
    }
    return fmt::format("ncclDevKernel_{}{}_RING_LL(ncclDevKernelArgsStorage<4096ul>)", what, reduces ? "_" + sum : "");
  };
  switch (kind) {
    case OpKind::reduce_scatter: return name("ReduceScatter", true);
    case OpKind::all_reduce: return name("AllReduce", true);
    case OpKind::expert_counts:
    case OpKind::expert_dispatch:
    case OpKind::expert_combine:
      return old ? "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
                 : "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
    default: return name("AllGather", false);
  }
}

std::string collective_op(const Dialect& dialect, OpKind kind) {
  const bool compiled = dialect.framework == Framework::compiled;
  switch (kind) {
    case OpKind::reduce_scatter:
      return compiled ? "_c10d_functional::reduce_scatter_tensor" : "c10d::_reduce_scatter_base_";
    case OpKind::all_reduce: return "c10d::allreduce_";
    case OpKind::expert_counts:
    case OpKind::expert_dispatch:
    case OpKind::expert_combine: return "c10d::alltoall_base_";
    default: return compiled ? "_c10d_functional::all_gather_into_tensor_out" : "c10d::_allgather_base_";
  }
}

}  // namespace fsdpbench::foreign::corpus
