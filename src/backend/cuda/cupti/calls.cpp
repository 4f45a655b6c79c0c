#include "backend/cuda/cupti/calls.h"

#include <array>

#include "backend/cuda/cupti/cupti_generation.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr KnownCall runtime(CUpti_CallbackId id, const char* name, KnownCall::Does does) {
  return {CUPTI_ACTIVITY_KIND_RUNTIME, id, name, does};
}
constexpr KnownCall driver(CUpti_CallbackId id, const char* name, KnownCall::Does does) {
  return {CUPTI_ACTIVITY_KIND_DRIVER, id, name, does};
}
constexpr KnownCall since_13(CUpti_ActivityKind kind, CallSince13 id, const char* name, KnownCall::Does does) {
  return {kind, static_cast<CUpti_CallbackId>(id), name, does};
}

using enum KnownCall::Does;

// NCCL launches by the driver's cuLaunchKernelEx, most others by the runtime. _ptsz: compiled for a default stream per
// thread.
constexpr auto kCalls = std::to_array<KnownCall>({
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020, "cudaPeekAtLastError", mark),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, "cudaLaunchKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000, "cudaLaunchKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, "cudaLaunchKernelExC", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060, "cudaLaunchKernelExC", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000, "cudaLaunchCooperativeKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000, "cudaLaunchCooperativeKernel", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, "cudaGraphLaunch", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_ptsz_v10000, "cudaGraphLaunch", launch),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020, "cudaMemcpy", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2D_v3020, "cudaMemcpy2D", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyToSymbol_v3020, "cudaMemcpyToSymbol", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020, "cudaMemset", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset2D_v3020, "cudaMemset2D", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3D_v3020, "cudaMemcpy3D", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset3D_v3020, "cudaMemset3D", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeer_v4000, "cudaMemcpyPeer", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, "cudaMemcpyAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_ptsz_v7000, "cudaMemcpyAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020, "cudaMemcpy2DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_ptsz_v7000, "cudaMemcpy2DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DAsync_v3020, "cudaMemcpy3DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DAsync_ptsz_v7000, "cudaMemcpy3DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyToSymbolAsync_v3020, "cudaMemcpyToSymbolAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyToSymbolAsync_ptsz_v7000, "cudaMemcpyToSymbolAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, "cudaMemsetAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000, "cudaMemsetAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset2DAsync_v3020, "cudaMemset2DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset2DAsync_ptsz_v7000, "cudaMemset2DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset3DAsync_v3020, "cudaMemset3DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemset3DAsync_ptsz_v7000, "cudaMemset3DAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000, "cudaMemcpyPeerAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DPeerAsync_v4000, "cudaMemcpy3DPeerAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DPeerAsync_ptsz_v7000, "cudaMemcpy3DPeerAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_v12080, "cudaMemcpyBatchAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_ptsz_v12080, "cudaMemcpyBatchAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_v12080, "cudaMemcpy3DBatchAsync", transfer),
    runtime(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_ptsz_v12080, "cudaMemcpy3DBatchAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, "cuLaunchKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, "cuLaunchKernelEx", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, "cuGraphLaunch", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz, "cuGraphLaunch", launch),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync, "cuMemcpyAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync_ptsz, "cuMemcpyAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2_ptsz, "cuMemcpyDtoHAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2_ptsz, "cuMemcpyDtoDAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2_ptsz, "cuMemcpy2DAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync_v2_ptsz, "cuMemcpy3DAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync, "cuMemcpyPeerAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync_ptsz, "cuMemcpyPeerAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DPeerAsync_ptsz, "cuMemcpy3DPeerAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync, "cuMemcpyBatchAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync_ptsz, "cuMemcpy3DBatchAsync", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async, "cuMemsetD8Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async_ptsz, "cuMemsetD8Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async, "cuMemsetD16Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async_ptsz, "cuMemsetD16Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async, "cuMemsetD32Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async_ptsz, "cuMemsetD32Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8Async, "cuMemsetD2D8Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8Async_ptsz, "cuMemsetD2D8Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16Async, "cuMemsetD2D16Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16Async_ptsz, "cuMemsetD2D16Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async, "cuMemsetD2D32Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async_ptsz, "cuMemsetD2D32Async", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2, "cuMemcpyHtoD", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2, "cuMemcpyDtoH", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2, "cuMemcpyDtoD", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2D_v2, "cuMemcpy2D", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemcpy3D_v2, "cuMemcpy3D", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2, "cuMemsetD8", transfer),
    driver(CUPTI_DRIVER_TRACE_CBID_cuMemsetD32_v2, "cuMemsetD32", transfer),
    since_13(CUPTI_ACTIVITY_KIND_RUNTIME, CallSince13::cudaLaunchKernel, "cudaLaunchKernel", launch),
    since_13(CUPTI_ACTIVITY_KIND_RUNTIME, CallSince13::cudaLaunchKernel_ptsz, "cudaLaunchKernel", launch),
    since_13(CUPTI_ACTIVITY_KIND_RUNTIME, CallSince13::cudaMemcpyBatchAsync, "cudaMemcpyBatchAsync", transfer),
    since_13(CUPTI_ACTIVITY_KIND_RUNTIME, CallSince13::cudaMemcpyBatchAsync_ptsz, "cudaMemcpyBatchAsync", transfer),
    since_13(CUPTI_ACTIVITY_KIND_RUNTIME, CallSince13::cudaMemcpy3DBatchAsync, "cudaMemcpy3DBatchAsync", transfer),
    since_13(CUPTI_ACTIVITY_KIND_RUNTIME, CallSince13::cudaMemcpy3DBatchAsync_ptsz, "cudaMemcpy3DBatchAsync", transfer),
    since_13(CUPTI_ACTIVITY_KIND_DRIVER, CallSince13::cuMemcpyBatchAsync, "cuMemcpyBatchAsync", transfer),
    since_13(CUPTI_ACTIVITY_KIND_DRIVER, CallSince13::cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", transfer),
    since_13(CUPTI_ACTIVITY_KIND_DRIVER, CallSince13::cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", transfer),
    since_13(CUPTI_ACTIVITY_KIND_DRIVER, CallSince13::cuMemcpy3DBatchAsync_ptsz, "cuMemcpy3DBatchAsync", transfer),
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
