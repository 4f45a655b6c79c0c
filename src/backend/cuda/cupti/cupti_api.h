#pragma once

#include <cuda_runtime_api.h>
#include <cupti.h>

#include <optional>
#include <string>

namespace fsdpbench::backend::cuda {

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
