#include "foreign/kineto_names.h"

#include <gmock/gmock.h>

namespace fsdpbench::foreign {
namespace {

using ::testing::Eq;
using ::testing::Optional;

TEST(KinetoNames, KernelsOfAllGenerationsOfTheLibrariesSayWhatTheyCommunicate) {
  using enum Communication;
  const std::pair<const char*, Communication> kernels[] = {
      {"ncclAllReduceRingLLKernel_sum_f32(ncclColl)", all_reduce},
      {"ncclAllGatherRingLLKernel_copy_i8(ncclWorkElem)", all_gather},
      {"ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", all_gather},
      {"ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", reduce_scatter},
      {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", all_gather},
      {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", reduce_scatter},
      {"ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", all_reduce},
      {"ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", broadcast},
      {"ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", reduce},
      {"ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", other},
      {"ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)", all_gather},
      {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", other},  // RCCL's
      {"void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", other},
      {"void mscclKernel_Sum_float_Simple(ncclDevComm*, mscclAlgo*)", other},
      {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, int)", all_reduce},
      {"void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16>(unsigned long*, unsigned long)",
       all_reduce},
  };
  for (const auto& [name, kind] : kernels) EXPECT_THAT(communication_of_kernel(name), Optional(kind)) << name;
}

TEST(KinetoNames, OtherKernelsCommunicateNothing) {
  for (const char* name : {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
                           "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)",
                           "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)",
                           "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, float>(ncclNot)"}) {
    EXPECT_THAT(communication_of_kernel(name), Eq(std::nullopt)) << name;
  }
}

TEST(KinetoNames, CallsOfCommunicatorsSayWhatTheyCommunicateAndWaitsDoNot) {
  using enum Communication;
  const std::pair<const char*, Communication> calls[] = {
      {"_allgather_base", all_gather},
      {"allgather_into_tensor_coalesced", all_gather},
      {"_reduce_scatter_base", reduce_scatter},
      {"reduce_scatter_tensor_coalesced", reduce_scatter},
      {"allreduce", all_reduce},
      {"all_to_allv", all_to_all},
      {"alltoall_base", all_to_all},
      {"_reduce_oop", reduce},
      {"_broadcast_oop", broadcast},
      {"recv", receive},
      {"send", send},
      {"barrier", barrier},
      {"gloo:all_gather", all_gather},
      {"nccl:_reduce_scatter_base", reduce_scatter},
      {"nccl2:_reduce_scatter_base", reduce_scatter},
  };
  for (const auto& [name, kind] : calls) EXPECT_THAT(communication_of_call(name), Optional(kind)) << name;
  EXPECT_THAT(communication_of_call("wait"), Eq(std::nullopt));
  EXPECT_THAT(communication_of_call("init"), Eq(std::nullopt));
}

TEST(KinetoNames, OpsThatCallCommunicatorsSayWhatTheyAskFor) {
  EXPECT_THAT(communication_of_op("c10d::alltoall_base_"), Optional(Communication::all_to_all));
  EXPECT_THAT(communication_of_op("_c10d_functional::all_gather_into_tensor_out"), Optional(Communication::all_gather));
  EXPECT_THAT(communication_of_op("_c10d_functional::wait_tensor"), Eq(std::nullopt));
  EXPECT_THAT(communication_of_op("aten::gather"), Eq(std::nullopt));
}

TEST(KinetoNames, CallsOfBothVendorsLaunchOrWait) {
  for (const char* name : {"cudaLaunchKernel", "cuLaunchKernelEx", "hipExtModuleLaunchKernel", "hipMemcpyWithStream",
                           "cudaMemsetAsync", "cudaGraphLaunch"}) {
    EXPECT_EQ(work_of_call(name), HostWork::launch) << name;
  }
  for (const char* name : {"cudaDeviceSynchronize", "hipStreamSynchronize", "cudaEventSynchronize"}) {
    EXPECT_EQ(work_of_call(name), HostWork::synchronise) << name;
  }
  for (const char* name : {"cudaMalloc", "cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchHostFunc"}) {
    EXPECT_EQ(work_of_call(name), HostWork::runtime) << name;
  }
}

TEST(KinetoNames, OfOpsThatCallOthersOnlyThoseWithWorkCount) {
  EXPECT_THAT(work_of_op("aten::addmm"), Optional(Activity::computation));
  EXPECT_THAT(work_of_op("aten::copy_"), Optional(Activity::copy));
  EXPECT_THAT(work_of_op("fsdp::split_with_sizes_copy"), Optional(Activity::copy));
  EXPECT_THAT(work_of_op("aten::zero_"), Optional(Activity::fill));
  for (const char* name :
       {"aten::view", "aten::empty", "autograd::engine::evaluate_function: AddmmBackward0",
        "torch::autograd::AccumulateGrad", "AddmmBackward0", "c10d::allgather_", "gloo:all_gather"}) {
    EXPECT_THAT(work_of_op(name), Eq(std::nullopt)) << name;
  }
}

TEST(KinetoNames, CopiesOfManyTensorsUpdateNothing) {
  EXPECT_TRUE(
      updates_parameters("multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>"));
  EXPECT_TRUE(updates_parameters("multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float>>"));
  EXPECT_FALSE(updates_parameters("multi_tensor_apply_kernel<CopyFunctor<float>, at::native::Copy<float, float>>"));
  EXPECT_FALSE(updates_parameters("gemm"));
}

}  // namespace
}  // namespace fsdpbench::foreign
