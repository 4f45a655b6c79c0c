#include "backend/cuda/cupti/collector.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "backend/cuda/cupti/cupti_generation.h"
#include "base/clock.h"

namespace fsdpbench::backend::cuda {

void BufferPool::Free::operator()(std::uint8_t* data) const { std::free(data); }

BufferPool::Memory BufferPool::make(std::size_t bytes) {
  // calloc leaves pages alone that the system zeroed: what no run needs is never touched.
  Memory memory(static_cast<std::uint8_t*>(std::calloc(1, bytes)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

BufferPool::BufferPool(const BufferLimits& limits)
    : limits_(limits),
      large_(make(limits.large_bytes * limits.large_count)),
      small_(make(limits.small_bytes * limits.small_count)),
      scratch_(make(limits.small_bytes)) {
  free_large_.reserve(limits.large_count);
  free_small_.reserve(limits.small_count);
  for (std::size_t i = limits.large_count; i-- > 0;) free_large_.push_back(large_.get() + i * limits.large_bytes);
  for (std::size_t i = limits.small_count; i-- > 0;) free_small_.push_back(small_.get() + i * limits.small_bytes);
}

BufferPool::Buffer BufferPool::take(bool large) {
  const std::lock_guard lock(mutex_);
  if ((large || free_small_.empty()) && !free_large_.empty()) {
    std::uint8_t* data = free_large_.back();
    free_large_.pop_back();
    return {data, limits_.large_bytes};
  }
  if (!free_small_.empty()) {
    std::uint8_t* data = free_small_.back();
    free_small_.pop_back();
    return {data, limits_.small_bytes};
  }
  ++shortages_;
  return {scratch_.get(), limits_.small_bytes};
}

bool BufferPool::is_large(const std::uint8_t* data) const {
  return data >= large_.get() && data < large_.get() + limits_.large_bytes * limits_.large_count;
}

void BufferPool::give_back(std::uint8_t* data) {
  const bool large = is_large(data);
  std::memset(data, 0, large ? limits_.large_bytes : limits_.small_bytes);
  const std::lock_guard lock(mutex_);
  (large ? free_large_ : free_small_).push_back(data);
}

std::int64_t BufferPool::shortages() const {
  const std::lock_guard lock(mutex_);
  return shortages_;
}

std::size_t BufferPool::in_use() const {
  const std::lock_guard lock(mutex_);
  return limits_.large_count - free_large_.size() + limits_.small_count - free_small_.size();
}
namespace {

std::atomic<Collector*> g_collector{nullptr};  // CUPTI's callbacks have no argument of ours
thread_local bool t_issues_ops = false;

constexpr auto kKinds = std::to_array<CUpti_ActivityKind>(
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
     CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER});

std::uint64_t timestamp() { return static_cast<std::uint64_t>(now_ns()); }

void on_event(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

std::string sentence(const CuptiApi& api, CUptiResult status, const char* what) {
  switch (status) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "Another profiler (nsys, ncu or PyTorch's) is attached to this process, and CUPTI serves only one.";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "CUPTI is not permitted here: the driver lets only administrators profile "
             "(NVreg_RestrictProfilingToAdminUsers).";
    default:
      return fmt::format("CUPTI cannot {}: {} (error {}).", what, message_of(api, status), static_cast<int>(status));
  }
}

}  // namespace

std::string message_of(const CuptiApi& api, CUptiResult status) {
  const char* text = nullptr;
  if (api.get_error_message(status, &text) != CUPTI_SUCCESS || text == nullptr) return "no further words";
  return text;
}

Collector::Collector(const CuptiApi& api, const BufferLimits& limits) : api_(api), pool_(limits) {
  queue_.reserve(limits.large_count + limits.small_count);
}

Collector::~Collector() {
  Collector* self = this;
  g_collector.compare_exchange_strong(self, nullptr);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

void Collector::on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  static std::array<std::uint64_t, 1024> nobodys;  // after the last collector: CUPTI still wants something
  *most_records = 0;
  Collector* self = g_collector.load();
  const BufferPool::Buffer taken =
      self != nullptr ? self->pool_.take(t_issues_ops)
                      : BufferPool::Buffer{reinterpret_cast<std::uint8_t*>(nobodys.data()), sizeof nobodys};
  *buffer = taken.data;
  *bytes = taken.bytes;
}

void Collector::on_complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  if (Collector* self = g_collector.load(); self != nullptr && buffer != nullptr) self->push({buffer, valid});
}

void Collector::push(Filled filled) {
  {
    const std::lock_guard lock(mutex_);
    if (pool_.is_scratch(filled.data)) {
      losses_.lost_bytes += static_cast<std::int64_t>(filled.bytes);
      return;
    }
    queue_.push_back(filled);
    ++pushed_;
  }
  changed_.notify_all();
}

void Collector::read() {
  std::vector<Filled> batch;
  batch.reserve(queue_.capacity());
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    batch.swap(queue_);
    lock.unlock();
    for (const Filled& filled : batch) {
      table_.add(decode(filled.data, filled.bytes, api_.get_next_record));
      pool_.give_back(filled.data);
    }
    lock.lock();
    done_ += batch.size();
    batch.clear();
    changed_.notify_all();
  }
}

void Collector::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&, goal = pushed_] { return done_ >= goal; });
}

void Collector::flush() {
  api_.flush_all(0);
  drain();
  std::size_t dropped = 0;
  if (api_.get_dropped(nullptr, 0, &dropped) != CUPTI_SUCCESS) return;
  const std::lock_guard lock(mutex_);
  losses_.dropped_by_cupti += static_cast<std::int64_t>(dropped);
}

std::string Collector::start() {
  std::uint32_t version = 0;
  if (const CUptiResult status = api_.get_version(&version); status != CUPTI_SUCCESS) {
    return sentence(api_, status, "say its version");
  }
  if (!reads_records_of({version})) {
    return fmt::format(
        "The CUPTI found here has version {}, and this program reads the records of versions from {} to "
        "the last of CUDA {} only.",
        version, kBuiltFor.number, kBuiltFor.major());
  }
  if (const CUptiResult status = api_.subscribe(&subscriber_, on_event, nullptr); status != CUPTI_SUCCESS) {
    return sentence(api_, status, "be subscribed to");
  }
  g_collector.store(this);
  if (!reader_.joinable()) reader_ = std::thread([this] { read(); });
  std::string problem = switch_on();
  on_ = true;
  if (!problem.empty()) switch_off();
  return problem;
}

std::string Collector::prepare() {
  if (prepared_) return "";
  // The clock before any kind: records that were begun under another clock would be far off.
  if (const CUptiResult status = api_.register_timestamp_callback(timestamp); status != CUPTI_SUCCESS) {
    return sentence(api_, status, "use this program's clock");
  }
  // Sizes of CUPTI's buffers on the device stay as they are: smaller ones cost records their times. The following are
  // better, but their want costs no figure.
  const auto set = [&](CUpti_ActivityAttribute attribute, const char* what) {
    std::uint8_t yes = 1;
    std::size_t size = sizeof yes;
    const CUptiResult status = api_.set_attribute(attribute, &size, &yes);
    if (status != CUPTI_SUCCESS) notes_.push_back(sentence(api_, status, what));
  };
  // One rank's running kernels then do not hold back another rank's records.
  set(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, "have buffers by thread");
  // Not by CUPTI in the middle of a launch.
  set(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, "leave it to this program to zero its buffers");
  api_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  prepared_ = true;
  return "";
}

std::string Collector::switch_on() {
  if (std::string problem = prepare(); !problem.empty()) return problem;
  if (const CUptiResult status = api_.register_callbacks(on_request, on_complete); status != CUPTI_SUCCESS) {
    return sentence(api_, status, "take buffers");
  }
  for (CUpti_ActivityKind kind : kKinds) {
    if (const CUptiResult status = api_.enable(kind); status != CUPTI_SUCCESS) {
      return sentence(api_, status, "record what the device does");
    }
  }
  leave_out_unwanted_calls();
  return "";
}

/// By switching off, after the kind was switched on: a call that is switched on alone, when the context exists already,
/// leaves no record. Switching on the kind forgets all this, so it is done anew each time.
void Collector::leave_out_unwanted_calls() {
  CUptiResult refused = CUPTI_SUCCESS;
  for (const CallKind& of : kCallKinds) {
    const auto enable = of.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? api_.enable_runtime_api : api_.enable_driver_api;
    for (CUpti_CallbackId id = 1; id < of.count; ++id) {
      if (find_call(of.kind, id) != nullptr) continue;
      if (const CUptiResult status = enable(id, 0); status != CUPTI_SUCCESS) refused = status;
    }
  }
  // Its records then only cost time.
  if (refused != CUPTI_SUCCESS && !told_of_unwanted_) {
    notes_.push_back(sentence(api_, refused, "leave out the calls that nobody needs"));
    told_of_unwanted_ = true;
  }
}

void Collector::switch_off() {
  for (CUpti_ActivityKind kind : kKinds) api_.disable(kind);
  api_.unsubscribe(subscriber_);
  on_ = false;
}

void Collector::stop() {
  if (!on_) return;
  flush();
  // Only now by force: what is incomplete comes as it is and never again.
  api_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  drain();
  switch_off();
  table_.clear();
}

void Collector::expect_ops_of_this_thread() { t_issues_ops = true; }

std::uint32_t Collector::new_timer_number() {
  const std::lock_guard lock(mutex_);
  return ++timers_;
}

Collector::Losses Collector::losses() const {
  const std::lock_guard lock(mutex_);
  Losses losses = losses_;
  losses.shortages = pool_.shortages();
  return losses;
}

}  // namespace fsdpbench::backend::cuda
