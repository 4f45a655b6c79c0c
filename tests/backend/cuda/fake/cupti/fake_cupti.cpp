#include "backend/cuda/fake/cupti/fake_cupti.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <random>
#include <utility>

#include "backend/cuda/fake/fake_stream.h"
#include "base/clock.h"

namespace fake::cupti {
namespace {

using fsdpbench::backend::cuda::CuptiApi;
using Bytes = std::vector<std::uint8_t>;

/// A time during which a thread had an id pushed; end 0: still.
struct Region {
  std::uint64_t id = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// Which calls of a kind (the runtime's or the driver's) leave a record, as the real library has it; probed with CUPTI
/// of CUDA 13.0 on a GPU by others (cuptiActivityEnableRuntimeApi's documentation promises less and more):
/// - with the kind on, all but those that were switched off since; to switch it on again forgets those;
/// - with the kind never on, those that were switched on, if the first of them was when there was no context yet;
/// - with the kind switched off, none, whatever is switched on.
struct CallSwitches {
  enum class Kind { never, on, off } kind = Kind::never;
  std::map<CUpti_CallbackId, bool> single;
  bool before_context = false;
};

struct State {
  std::recursive_mutex mutex;  // held during callbacks
  std::vector<std::string> calls;
  std::map<std::string, CUptiResult> failures;
  std::uint32_t version = CUPTI_API_VERSION;
  std::size_t dropped = 0;
  std::function<void(std::uint32_t)> at_flush;
  bool marks = true;
  bool recording_calls = true;
  std::int64_t behind_ns = 0;                                         // the GPU's clock
  std::map<std::pair<int, std::uint64_t>, std::int64_t> last_end_ns;  // by device and stream
  CUpti_TimestampCallbackFunc clock = nullptr;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::map<CUpti_ActivityKind, bool> kinds;
  std::map<CUpti_ActivityKind, CallSwitches> calls_of;  // RUNTIME, DRIVER
  std::vector<Bytes> pending, held;
  std::map<std::uint32_t, std::vector<Region>> regions;  // by thread
};

State& state() {
  static State& only = *new State;  // threads may outlive main
  return only;
}
// Numbers go on over reset(): late records must not meet new ones.
std::uint32_t g_correlation = 0;

std::uint32_t thread_number() { return static_cast<std::uint32_t>(gettid()); }

/// Notes the call; the status it has been told to return.
CUptiResult called(const std::string& name, const std::string& detail = "") {
  const std::lock_guard lock(state().mutex);
  state().calls.push_back(detail.empty() ? name : name + " " + detail);
  const auto failure = state().failures.find(name);
  return failure != state().failures.end() ? failure->second : CUPTI_SUCCESS;
}

std::size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(cuda::KernelRecord);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(cuda::CopyRecord);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(cuda::PeerCopyRecord);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(cuda::FillRecord);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return sizeof(cuda::CallRecord);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(cuda::OwnerRecord);
    case CUPTI_ACTIVITY_KIND_NAME: return sizeof(CUpti_ActivityName);
    default: return 0;
  }
}

/// The id that `thread` had pushed at `time`; 0: none.
std::uint64_t id_at(std::uint32_t thread, std::int64_t time_ns) {
  const std::vector<Region>& regions = state().regions[thread];
  for (auto region = regions.rbegin(); region != regions.rend(); ++region) {
    if (region->begin_ns <= time_ns && (region->end_ns == 0 || time_ns <= region->end_ns)) return region->id;
  }
  return 0;
}

CUptiResult switch_call(CUpti_ActivityKind kind, CUpti_CallbackId id, CUpti_CallbackId count, bool on) {
  const std::lock_guard lock(state().mutex);
  if (id == 0 || id >= count) return CUPTI_ERROR_INVALID_PARAMETER;
  CallSwitches& switches = state().calls_of[kind];
  switches.single[id] = on;
  if (on && !has_context()) switches.before_context = true;
  return called(kind == CUPTI_ACTIVITY_KIND_RUNTIME ? "cuptiActivityEnableRuntimeApi" : "cuptiActivityEnableDriverApi");
}

void switch_kind(CUpti_ActivityKind kind, bool on) {
  state().kinds[kind] = on;
  CallSwitches& switches = state().calls_of[kind];
  switches.kind = on ? CallSwitches::Kind::on : CallSwitches::Kind::off;
  switches.single.clear();
}

bool is_on(CUpti_ActivityKind kind) {
  const auto found = state().kinds.find(kind);
  return found != state().kinds.end() && found->second;
}

/// The records of one call, owner first; nothing if such calls are not recorded. Returns the correlation.
std::uint32_t record_call(CUpti_ActivityKind kind, CUpti_CallbackId id, std::uint32_t thread, std::int64_t begin,
                          std::int64_t end) {
  const std::uint32_t correlation = ++g_correlation;
  if (!records(kind, id)) return correlation;
  const std::uint64_t owner = is_on(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) ? id_at(thread, begin) : 0;
  if (owner != 0) record(owner_record(correlation, owner));
  record(
      call_record(correlation, kind, id, thread, static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)));
  return correlation;
}

CUptiResult flush_all(std::uint32_t flag) {
  const CUptiResult status = called("cuptiActivityFlushAll", flag == 0 ? "" : "forced");
  std::function<void(std::uint32_t)> action;
  {
    const std::lock_guard lock(state().mutex);
    action = state().at_flush;
  }
  if (action) action(flag);
  const std::lock_guard lock(state().mutex);
  deliver(std::exchange(state().pending, std::exchange(state().held, {})));
  return status;
}

CUptiResult next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** at) {
  if (buffer == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::uint8_t* next = buffer;
  if (*at != nullptr) next = reinterpret_cast<std::uint8_t*>(*at) + size_of((*at)->kind);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* record = reinterpret_cast<CUpti_Activity*>(next);
  if (size_of(record->kind) == 0) return CUPTI_ERROR_INVALID_KIND;
  *at = record;
  return CUPTI_SUCCESS;
}

CUptiResult push_id(CUpti_ExternalCorrelationKind, std::uint64_t id) {
  const std::lock_guard lock(state().mutex);
  state().regions[thread_number()].push_back({id, fsdpbench::now_ns(), 0});
  return CUPTI_SUCCESS;
}

CUptiResult pop_id(CUpti_ExternalCorrelationKind, std::uint64_t* last) {
  const std::lock_guard lock(state().mutex);
  std::vector<Region>& regions = state().regions[thread_number()];
  for (auto region = regions.rbegin(); region != regions.rend(); ++region) {
    if (region->end_ns != 0) continue;
    region->end_ns = fsdpbench::now_ns();
    if (last != nullptr) *last = region->id;
    return CUPTI_SUCCESS;
  }
  return CUPTI_ERROR_QUEUE_EMPTY;
}

void record_finished(const FinishedWork& work) {
  const std::lock_guard lock(state().mutex);
  const bool kernel = work.label.kind == WorkKind::kernel;
  const CUpti_ActivityKind of = kernel                              ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                                : work.label.kind == WorkKind::copy ? CUPTI_ACTIVITY_KIND_MEMCPY
                                                                    : CUPTI_ACTIVITY_KIND_MEMSET;
  const CUpti_CallbackId id = kernel                              ? CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000
                              : work.label.kind == WorkKind::copy ? CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020
                                                                  : CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020;
  const std::uint32_t correlation =
      record_call(CUPTI_ACTIVITY_KIND_RUNTIME, id, work.launch_thread, work.launched_ns, work.launched_ns);
  if (!is_on(of)) return;
  const std::int64_t behind = state().behind_ns;
  std::int64_t& last_end = state().last_end_ns[{work.device, work.stream}];
  const bool at_once = behind > 0 && work.launched_ns >= last_end;  // whatever a busy machine makes of it
  const std::int64_t begin = (at_once ? work.launched_ns : work.begin_ns) - behind;
  last_end = work.end_ns;
  const WorkFacts facts{work.label.name,
                        static_cast<std::uint32_t>(work.device),
                        static_cast<std::uint32_t>(work.stream),
                        static_cast<std::uint64_t>(begin),
                        static_cast<std::uint64_t>(work.end_ns - behind),
                        static_cast<std::uint64_t>(work.label.bytes)};
  if (kernel) {
    record(kernel_record(correlation, facts));
  } else if (work.label.kind == WorkKind::copy) {
    record(copy_record(correlation, facts));
  } else {
    record(fill_record(correlation, facts));
  }
}

}  // namespace

CuptiApi api() {
  CuptiApi table;
  table.get_version = [](std::uint32_t* version) {
    *version = state().version;
    return called("cuptiGetVersion");
  };
  table.get_error_message = [](CUptiResult, const char** text) {
    *text = "the fake says so";
    return CUPTI_SUCCESS;
  };
  table.subscribe = [](CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*) {
    observe(record_finished);
    return called("cuptiSubscribe");
  };
  table.unsubscribe = [](CUpti_SubscriberHandle) { return called("cuptiUnsubscribe"); };
  table.set_thread_id_type = [](CUpti_ActivityThreadIdType) { return called("cuptiSetThreadIdType"); };
  table.set_attribute = [](CUpti_ActivityAttribute attribute, std::size_t*, void*) {
    const CUptiResult status = called("cuptiActivitySetAttribute", std::to_string(attribute));
    const std::lock_guard lock(state().mutex);
    const bool any_kind = std::ranges::any_of(state().kinds, [](const auto& kind) { return kind.second; });
    // cupti_activity.h: before callbacks are registered and before any kind; else undefined, which here is refused.
    return state().request != nullptr || any_kind ? CUPTI_ERROR_INVALID_OPERATION : status;
  };
  table.register_timestamp_callback = [](CUpti_TimestampCallbackFunc clock) {
    state().clock = clock;
    return called("cuptiActivityRegisterTimestampCallback");
  };
  table.register_callbacks = [](CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete) {
    const std::lock_guard lock(state().mutex);
    state().request = request;
    state().complete = complete;
    return called("cuptiActivityRegisterCallbacks");
  };
  table.enable = [](CUpti_ActivityKind kind) {
    const std::lock_guard lock(state().mutex);
    switch_kind(kind, true);
    return called("cuptiActivityEnable", std::to_string(kind));
  };
  table.disable = [](CUpti_ActivityKind kind) {
    const std::lock_guard lock(state().mutex);
    switch_kind(kind, false);
    return called("cuptiActivityDisable", std::to_string(kind));
  };
  table.enable_runtime_api = [](CUpti_CallbackId id, std::uint8_t on) {
    return switch_call(CUPTI_ACTIVITY_KIND_RUNTIME, id, CUPTI_RUNTIME_TRACE_CBID_SIZE, on != 0);
  };
  table.enable_driver_api = [](CUpti_CallbackId id, std::uint8_t on) {
    return switch_call(CUPTI_ACTIVITY_KIND_DRIVER, id, CUPTI_DRIVER_TRACE_CBID_SIZE, on != 0);
  };
  table.push_external_id = push_id;
  table.pop_external_id = pop_id;
  table.flush_all = flush_all;
  table.get_next_record = next_record;
  table.get_dropped = [](CUcontext, std::uint32_t, std::size_t* records) {
    const std::lock_guard lock(state().mutex);
    *records = std::exchange(state().dropped, 0);
    return called("cuptiActivityGetNumDroppedRecords");
  };
  table.get_stream_id = [](CUcontext, CUstream stream, std::uint8_t, std::uint32_t* id) {
    unsigned long long number = 0;
    cudaStreamGetId(stream, &number);
    *id = static_cast<std::uint32_t>(number);
    return CUPTI_SUCCESS;
  };
  table.current_device = [](int* device) { return cudaGetDevice(device); };
  table.mark = [] {
    const std::lock_guard lock(state().mutex);
    const std::int64_t now = fsdpbench::now_ns();
    if (state().marks) {
      record_call(CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020, thread_number(), now,
                  now);
    }
    return cudaSuccess;
  };
  return table;
}

void reset() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.calls.clear();
  s.failures.clear();
  s.version = CUPTI_API_VERSION;
  s.dropped = 0;
  s.at_flush = nullptr;
  s.marks = true;
  s.recording_calls = true;
  s.behind_ns = 0;
  s.last_end_ns.clear();
  s.clock = nullptr;
  s.request = nullptr;
  s.complete = nullptr;
  s.kinds.clear();
  s.calls_of.clear();
  s.pending.clear();
  s.held.clear();
  s.regions.clear();
}

std::vector<std::string> calls() {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}
int count_of(const std::string& call) {
  const std::vector<std::string> all = calls();
  return static_cast<int>(std::ranges::count(all, call));
}

void fail(const std::string& function, CUptiResult status) {
  const std::lock_guard lock(state().mutex);
  state().failures[function] = status;
}
void set_version(std::uint32_t version) { state().version = version; }
void drop(std::size_t records) {
  const std::lock_guard lock(state().mutex);
  state().dropped = records;
}
void at_flush(std::function<void(std::uint32_t)> action) {
  const std::lock_guard lock(state().mutex);
  state().at_flush = std::move(action);
}
void ignore_marks() { state().marks = false; }
void set_clock_behind(std::int64_t ns) {
  const std::lock_guard lock(state().mutex);
  state().behind_ns = ns;
}
void ignore_calls() { state().recording_calls = false; }

bool records(CUpti_ActivityKind kind, CUpti_CallbackId id) {
  const std::lock_guard lock(state().mutex);
  const CallSwitches& switches = state().calls_of[kind];
  if (!state().recording_calls || switches.kind == CallSwitches::Kind::off) return false;
  const auto found = switches.single.find(id);
  if (switches.kind == CallSwitches::Kind::on) return found == switches.single.end() || found->second;
  return switches.before_context && found != switches.single.end() && found->second;
}

std::uint32_t new_correlation() {
  const std::lock_guard lock(state().mutex);
  return ++g_correlation;
}
std::uint64_t pushed_id() {
  const std::lock_guard lock(state().mutex);
  return id_at(thread_number(), fsdpbench::now_ns());
}
void record_bytes(Bytes bytes) {
  const std::lock_guard lock(state().mutex);
  state().pending.push_back(std::move(bytes));
}

std::uint32_t launch_kernel(const WorkFacts& facts) {
  const std::lock_guard lock(state().mutex);
  const std::int64_t now = fsdpbench::now_ns();
  const std::uint32_t correlation = record_call(
      CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, thread_number(), now, now + 10);
  record(kernel_record(correlation, facts));
  return correlation;
}

void launch_kernel_by_driver(const WorkFacts& facts, bool one_number) {
  const std::lock_guard lock(state().mutex);
  const std::int64_t now = fsdpbench::now_ns();
  const std::uint32_t outer = record_call(
      CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, thread_number(), now, now + 30);
  std::uint32_t inner = outer;
  if (one_number) {
    if (records(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx)) {
      record(call_record(outer, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, thread_number(),
                         static_cast<std::uint64_t>(now + 10), static_cast<std::uint64_t>(now + 20)));
    }
  } else {
    inner = record_call(CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, thread_number(), now + 10,
                        now + 20);
  }
  record(kernel_record(inner, facts));
}

void shuffle(unsigned seed) {
  const std::lock_guard lock(state().mutex);
  std::mt19937 random(seed);
  std::ranges::shuffle(state().pending, random);
}

void discard() {
  const std::lock_guard lock(state().mutex);
  state().pending.clear();
}

void hold() {
  const std::lock_guard lock(state().mutex);
  for (Bytes& bytes : std::exchange(state().pending, {})) state().held.push_back(std::move(bytes));
}

Buffer request() {
  const std::lock_guard lock(state().mutex);
  if (state().request == nullptr) return {};
  Buffer buffer;
  std::size_t most_records = 0;
  state().request(&buffer.data, &buffer.bytes, &most_records);
  return buffer;
}
void complete(Buffer buffer, std::size_t valid) {
  const std::lock_guard lock(state().mutex);
  if (state().complete != nullptr) state().complete(nullptr, 0, buffer.data, buffer.bytes, valid);
}

void deliver(const std::vector<Bytes>& all) {
  for (std::size_t next = 0; next < all.size();) {
    const Buffer buffer = request();
    if (buffer.data == nullptr) {
      drop(all.size() - next);  // as CUPTI counts them
      return;
    }
    std::size_t used = 0;
    for (; next < all.size() && used + all[next].size() <= buffer.bytes; used += all[next++].size()) {
      std::memcpy(buffer.data + used, all[next].data(), all[next].size());
    }
    complete(buffer, used);
  }
}

}  // namespace fake::cupti

namespace fsdpbench::backend::cuda {

// In the emulated backend: there unless the tester says otherwise. "silent": it records no call. "behind": the GPU's
// clock is 40 us behind the host's.
std::optional<CuptiApi> load_cupti(std::string* why_not) {
  const char* const set = std::getenv("FSDPBENCH_FAKE_CUPTI");
  const std::string wanted = set == nullptr ? "" : set;
  if (wanted == "0") {
    *why_not = "CUPTI cannot be loaded: FSDPBENCH_FAKE_CUPTI is 0.";
    return std::nullopt;
  }
  if (wanted == "silent") fake::cupti::ignore_calls();
  if (wanted == "behind") fake::cupti::set_clock_behind(40'000);
  return fake::cupti::api();
}

}  // namespace fsdpbench::backend::cuda
