#include "backend/cuda/cupti/calls.h"

#include <array>

namespace fsdpbench::backend::cuda {
namespace {

constexpr KnownCall runtime(CUpti_CallbackId id, const char* name, KnownCall::Does does) {
  return {CUPTI_ACTIVITY_KIND_RUNTIME, id, name, does};
}
constexpr KnownCall driver(CUpti_CallbackId id, const char* name, KnownCall::Does does) {
  return {CUPTI_ACTIVITY_KIND_DRIVER, id, name, does};
}

using enum KnownCall::Does;

// NCCL launches by the driver's cuLaunchKernelEx, most others by the runtime.
constexpr auto kCalls = std::to_array<KnownCall>({
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020, "cudaPeekAtLastError", mark),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000, "cudaLaunchKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000, "cudaLaunchKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000, "cudaLaunchKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, "cudaLaunchKernelExC", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060, "cudaLaunchKernelExC", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000, "cudaLaunchCooperativeKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000, "cudaLaunchCooperativeKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020, "cudaMemcpy", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, "cudaMemcpyAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_ptsz_v7000, "cudaMemcpyAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000, "cudaMemcpyPeerAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020, "cudaMemcpy2DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_ptsz_v7000, "cudaMemcpy2DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_v13000, "cudaMemcpyBatchAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020, "cudaMemset", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000, "cudaMemsetAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, "cuLaunchKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, "cuLaunchKernelEx", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync, "cuMemcpyAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz, "cuMemcpyAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz, "cuMemcpyDtoDAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async, "cuMemsetD8Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz, "cuMemsetD8Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async, "cuMemsetD16Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async, "cuMemsetD32Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz, "cuMemsetD32Async", transfer),
});

}  // namespace

std::span<const KnownCall> known_calls() { return kCalls; }

const KnownCall* find_call(CUpti_ActivityKind kind, CUpti_CallbackId id) {
  for (const KnownCall& call : kCalls) {
    if (call.kind == kind && call.id == id) return &call;
  }
  return nullptr;
}

}  // namespace fsdpbench::backend::cuda
