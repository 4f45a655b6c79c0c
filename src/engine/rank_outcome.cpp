#include "engine/rank_outcome.h"

#include <fmt/format.h>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fsdpbench::engine {

namespace {

/// Changes with the size of anything that travels as it lies in memory.
constexpr std::uint64_t kLayout = 0x6f757463'6f6d6531ULL ^ (sizeof(trace::Record) << 1) ^
                                  (sizeof(trace::StepWindow) << 9) ^ (sizeof(trace::MemorySample) << 17) ^
                                  (sizeof(Activity) << 25) ^ (sizeof(PoolStatistics) << 33) ^
                                  (sizeof(backend::WireBytes) << 41) ^ (sizeof(GpuSample) << 49) ^
                                  (sizeof(GpuErrors) << 53) ^ (sizeof(GpuLimits) << 57);

class Writer {
 public:
  template <class T>
  void value(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  template <class T>
  void list(const std::vector<T>& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    value(static_cast<std::uint64_t>(v.size()));
    bytes_.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
  }
  void text(std::string_view v) {
    value(static_cast<std::uint64_t>(v.size()));
    bytes_.append(v);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T value() {
    T v{};
    std::memcpy(&v, next(1, sizeof v), sizeof v);
    return v;
  }
  template <class T>
  std::vector<T> list() {
    const auto count = value<std::uint64_t>();
    const char* source = next(count, sizeof(T));
    std::vector<T> v(count);
    if (count > 0) std::memcpy(v.data(), source, count * sizeof(T));
    return v;
  }
  std::string text() {
    const auto size = value<std::uint64_t>();
    return {next(size, 1), size};
  }
  /// Number of elements that follow, of at least `least_size` bytes each.
  std::uint64_t count(std::size_t least_size) {
    const auto n = value<std::uint64_t>();
    check(n, least_size);
    return n;
  }
  void end() const {
    if (!bytes_.empty()) {
      throw BackendError(fmt::format("the outcome of a rank has {} bytes too many", bytes_.size()));
    }
  }

 private:
  void check(std::uint64_t n, std::size_t size) const {
    if (n <= bytes_.size() / size) return;
    throw BackendError(fmt::format("the outcome of a rank is cut short: {} x {} bytes are announced and {} are there",
                                   n, size, bytes_.size()));
  }
  const char* next(std::uint64_t n, std::size_t size) {
    check(n, size);
    const char* begin = bytes_.data();
    bytes_.remove_prefix(n * size);
    return begin;
  }

  std::string_view bytes_;
};

}  // namespace

std::string to_bytes(const RankOutcome& o) {
  Writer w;
  w.value(kLayout);
  w.value(static_cast<std::int64_t>(o.trace.rank));
  w.list(o.trace.steps);
  w.list(o.trace.records);
  w.list(o.trace.memory);
  w.list(o.trace.activities);
  w.value(static_cast<std::uint64_t>(o.trace.activity_names.size()));
  for (const std::string& name : o.trace.activity_names) w.text(name);
  w.value(o.memory);
  w.value(o.host_memory);
  w.value(o.wire_bytes);
  w.value(static_cast<std::uint64_t>(o.device.size()));
  for (const auto& [name, fact] : o.device) {
    w.text(name);
    w.text(fact);
  }
  w.text(o.host);
  w.value(o.early_ns);
  w.value(o.gpu.has_value());
  if (!o.gpu) return w.take();
  w.text(o.gpu->unknown_because);
  w.value(o.gpu->limits);
  w.list(o.gpu->samples);
  w.list(o.gpu->xids);
  w.value(o.gpu->xids_left_out);
  w.value(o.gpu->errors);
  return w.take();
}

RankOutcome outcome_from_bytes(std::string_view bytes) {
  Reader r(bytes);
  if (r.value<std::uint64_t>() != kLayout) {
    throw BackendError("the outcome of a rank has another layout: do all ranks run the same program?");
  }
  RankOutcome o;
  o.trace.rank = static_cast<int>(r.value<std::int64_t>());
  o.trace.steps = r.list<trace::StepWindow>();
  o.trace.records = r.list<trace::Record>();
  o.trace.memory = r.list<trace::MemorySample>();
  o.trace.activities = r.list<Activity>();
  for (std::uint64_t n = r.count(sizeof(std::uint64_t)); n > 0; --n) o.trace.activity_names.push_back(r.text());
  o.memory = r.value<PoolStatistics>();
  o.host_memory = r.value<PoolStatistics>();
  o.wire_bytes = r.value<backend::WireBytes>();
  for (std::uint64_t n = r.count(2 * sizeof(std::uint64_t)); n > 0; --n) {
    std::string name = r.text();
    o.device.emplace_back(std::move(name), r.text());
  }
  o.host = r.text();
  o.early_ns = r.value<std::int64_t>();
  if (r.value<bool>()) {
    GpuHealth& gpu = o.gpu.emplace();
    gpu.unknown_because = r.text();
    gpu.limits = r.value<GpuLimits>();
    gpu.samples = r.list<GpuSample>();
    gpu.xids = r.list<GpuXid>();
    gpu.xids_left_out = r.value<std::int64_t>();
    gpu.errors = r.value<GpuErrors>();
  }
  r.end();
  return o;
}

void move_to_root_clock(trace::RankTrace& trace, const launch::ClockCorrection& clock) {
  if (clock.same_clock()) return;
  const auto move = [&](std::initializer_list<std::int64_t*> times) {
    for (std::int64_t* time : times) {
      if (*time != 0) *time = clock.to_root(*time);
    }
  };
  for (trace::StepWindow& w : trace.steps) move({&w.begin_ns, &w.end_ns, &w.issued_ns});
  for (trace::Record& r : trace.records) move({&r.issued_ns, &r.begin_ns, &r.end_ns, &r.peers_arrived_ns});
  for (trace::MemorySample& s : trace.memory) move({&s.time_ns});
  for (Activity& a : trace.activities) move({&a.begin_ns, &a.end_ns, &a.launch_begin_ns, &a.launch_end_ns});
}

void move_to_root_clock(GpuHealth& gpu, const launch::ClockCorrection& clock) {
  if (clock.same_clock()) return;
  for (GpuSample& sample : gpu.samples) {
    sample.time_ns = clock.to_root(sample.time_ns);
    sample.until_ns = clock.to_root(sample.until_ns);
  }
  for (GpuXid& xid : gpu.xids) xid.time_ns = clock.to_root(xid.time_ns);
}

}  // namespace fsdpbench::engine
