#pragma once

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace fsdpbench::backend::cuda {

// All of CUPTI that changes with the toolkit. NVIDIA's record structs have a generation number; the newest of this
// header's is named here and nowhere else. Fields are added at their end: a struct of this header also reads the
// records of a later CUPTI of the same major version.
#if CUPTI_API_VERSION >= 130200
using KernelRecord = CUpti_ActivityKernel12;
#elif CUPTI_API_VERSION >= 130100
using KernelRecord = CUpti_ActivityKernel11;
#elif CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif
using CopyRecord = CUpti_ActivityMemcpy6;
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
using FillRecord = CUpti_ActivityMemset4;
using CallRecord = CUpti_ActivityAPI;
using OwnerRecord = CUpti_ActivityExternalCorrelation;

static_assert(CUPTI_API_VERSION >= 26, "fsdpbench needs the CUPTI of CUDA 12.8 or newer");
static_assert(offsetof(KernelRecord, start) == 16 && offsetof(KernelRecord, correlationId) == 92 &&
              offsetof(KernelRecord, name) == 104 && sizeof(KernelRecord) % 8 == 0);
static_assert(offsetof(CopyRecord, bytes) == 8 && offsetof(CopyRecord, correlationId) == 44 &&
              sizeof(CopyRecord) % 8 == 0);
static_assert(offsetof(FillRecord, bytes) == 8 && offsetof(FillRecord, correlationId) == 44 &&
              sizeof(FillRecord) % 8 == 0);
static_assert(sizeof(CallRecord) == 40 && sizeof(OwnerRecord) == 24);

/// A version as cuptiGetVersion says it. From CUDA 13 on it is major, minor and patch of CUDA, two digits each, as in
/// 130001; before that it counts, 26 for CUDA 12.8.
struct CuptiVersion {
  std::uint32_t number = 0;

  constexpr std::uint32_t major() const { return number >= 130000 ? number / 10000 : 12; }
  constexpr std::uint32_t minor() const { return number >= 130000 ? number / 100 % 100 : number; }
};
inline constexpr CuptiVersion kBuiltFor{CUPTI_API_VERSION};

/// Whether this program reads the records of that CUPTI.
constexpr bool reads_records_of(CuptiVersion version) {
  return version.major() == kBuiltFor.major() && version.minor() >= kBuiltFor.minor();
}

/// CUPTI's numbers of calls that came with CUDA 13, which a header of 12 does not name. No number means two calls.
enum class CallSince13 : CUpti_CallbackId {
  cudaLaunchKernel = 505,  // as the compiler spells it: __cudaLaunchKernel
  cudaLaunchKernel_ptsz = 506,
  cudaMemcpyBatchAsync = 509,
  cudaMemcpyBatchAsync_ptsz = 510,
  cudaMemcpy3DBatchAsync = 511,
  cudaMemcpy3DBatchAsync_ptsz = 512,
  cuMemcpyBatchAsync = 796,
  cuMemcpyBatchAsync_ptsz = 797,
  cuMemcpy3DBatchAsync = 798,
  cuMemcpy3DBatchAsync_ptsz = 799,
};
#if CUPTI_API_VERSION >= 130000
static_assert(CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000 == 505 &&
              CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_ptsz_v13000 == 512 &&
              CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync_v2_ptsz == 799);
#endif

/// The functions of CUPTI that are used, as pointers: so the backend starts where the library is missing, and tests
/// put a fake in its place. All of them may be called from any thread.
struct CuptiApi {
  decltype(&cuptiGetVersion) get_version = nullptr;
  decltype(&cuptiGetErrorMessage) get_error_message = nullptr;
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiSetThreadIdType) set_thread_id_type = nullptr;
  decltype(&cuptiActivitySetAttribute) set_attribute = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp_callback = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityEnableRuntimeApi) enable_runtime_api = nullptr;
  decltype(&cuptiActivityEnableDriverApi) enable_driver_api = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_external_id = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_external_id = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) get_next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) get_dropped = nullptr;
  decltype(&cuptiGetStreamIdEx) get_stream_id = nullptr;
  // Calls of the CUDA runtime; they are here because tests replace them together with CUPTI.
  cudaError_t (*current_device)(int* device) = nullptr;
  /// Does nothing but leave a record of its call: see CuptiTimer.
  cudaError_t (*mark)() = nullptr;
};

/// CUPTI of the toolkit this was built with, or of the system; nothing with one plain sentence in `why_not` where it
/// cannot be loaded.
std::optional<CuptiApi> load_cupti(std::string* why_not);

/// CUPTI's own words for `status`.
std::string message_of(const CuptiApi& api, CUptiResult status);

}  // namespace fsdpbench::backend::cuda
