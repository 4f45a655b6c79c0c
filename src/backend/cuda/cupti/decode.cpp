#include "backend/cuda/cupti/decode.h"

#include <fmt/format.h>

#include <array>

#include "backend/cuda/cupti/cupti_generation.h"

namespace fsdpbench::backend::cuda {
namespace {

std::string_view direction(std::uint8_t kind) {
  constexpr std::array<std::string_view, 11> kNames{"?",    "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                    "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < kNames.size() ? kNames[kind] : kNames[0];
}

std::string_view memory(std::uint32_t kind) {
  constexpr std::array<std::string_view, 8> kNames{"Unknown", "Pageable", "Pinned",        "Device",
                                                   "Array",   "Managed",  "Device Static", "Managed Static"};
  return kind < kNames.size() ? kNames[kind] : kNames[0];
}

template <typename Record>
Work work_of(const Record& record, Activity::Kind kind) {
  Work work;
  work.kind = kind;
  work.correlation = record.correlationId;
  work.device = record.deviceId;
  work.stream = record.streamId;
  work.begin_ns = static_cast<std::int64_t>(record.start);
  work.end_ns = static_cast<std::int64_t>(record.end);
  return work;
}

template <typename Record>
Work copy_of(const Record& record) {
  Work work = work_of(record, Activity::Kind::copy);
  work.bytes = static_cast<std::int64_t>(record.bytes);
  work.name =
      fmt::format("Memcpy {} ({} -> {})", direction(record.copyKind), memory(record.srcKind), memory(record.dstKind));
  return work;
}

/// Walks over one buffer.
class Reader {
 public:
  Reader(const std::uint8_t* begin, std::size_t bytes, Decoded& out) : end_(begin + bytes), out_(out) {}

  void record(const CUpti_Activity* activity) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_KERNEL:
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return read<KernelRecord>(activity, [this](const KernelRecord& r) {
          Work work = work_of(r, Activity::Kind::kernel);
          work.name = r.name != nullptr ? r.name : "unknown kernel";
          out_.works.push_back(std::move(work));
        });
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        return read<CopyRecord>(activity, [this](const CopyRecord& r) { out_.works.push_back(copy_of(r)); });
      case CUPTI_ACTIVITY_KIND_MEMCPY2:
        return read<PeerCopyRecord>(activity, [this](const PeerCopyRecord& r) { out_.works.push_back(copy_of(r)); });
      case CUPTI_ACTIVITY_KIND_MEMSET:
        return read<FillRecord>(activity, [this](const FillRecord& r) {
          Work work = work_of(r, Activity::Kind::fill);
          work.bytes = static_cast<std::int64_t>(r.bytes);
          work.name = fmt::format("Memset ({})", memory(r.memoryKind));
          out_.works.push_back(std::move(work));
        });
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER: return read<CallRecord>(activity, [this](const CallRecord& r) { call(r); });
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return read<OwnerRecord>(activity, [this](const OwnerRecord& r) {
          if (r.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) {
            out_.owners.push_back({r.correlationId, r.externalId});
          }
        });
      default: ++out_.unknown;
    }
  }

 private:
  template <typename Record, typename Use>
  void read(const CUpti_Activity* activity, const Use& use) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(activity);
    if (static_cast<std::size_t>(end_ - begin) < sizeof(Record)) {
      out_.damaged = true;
      return;
    }
    use(*reinterpret_cast<const Record*>(activity));
  }

  void call(const CallRecord& r) {
    const KnownCall* what = find_call(r.kind, r.cbid);
    if (what == nullptr) return;  // where CUPTI cannot filter, it records every call
    out_.calls.push_back({r.correlationId, r.threadId, static_cast<std::int64_t>(r.start),
                          static_cast<std::int64_t>(r.end), what, r.returnValue != 0});
  }

  const std::uint8_t* end_;
  Decoded& out_;
};

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

Decoded decode(std::uint8_t* buffer, std::size_t bytes, decltype(CuptiApi::get_next_record) next) {
  Decoded out;
  Reader reader(buffer, bytes, out);
  CUpti_Activity* record = nullptr;
  while (bytes > 0 && !out.damaged) {
    const CUptiResult status = next(buffer, bytes, &record);
    if (status == CUPTI_ERROR_MAX_LIMIT_REACHED) break;
    if (status != CUPTI_SUCCESS) {
      out.damaged = true;
    } else {
      reader.record(record);
    }
  }
  return out;
}

std::span<const KnownCall> known_calls() { return kCalls; }

const KnownCall* find_call(CUpti_ActivityKind kind, CUpti_CallbackId id) {
  for (const KnownCall& call : kCalls) {
    if (call.kind == kind && call.id == id) return &call;
  }
  return nullptr;
}

}  // namespace fsdpbench::backend::cuda
