#include "engine/rank_outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fsdpbench::engine {

trace::RankTrace DoneSteps::copy() const {
  trace::RankTrace t;
  t.rank = trace_->rank;
  if (windows_ == 0) return t;
  // Not through begin() and end(): the rank's own thread may be appending behind what was published.
  t.steps.assign(trace_->steps.data(), trace_->steps.data() + windows_);
  t.records.assign(trace_->records.data(), trace_->records.data() + records_);
  t.memory.assign(trace_->memory.data(), trace_->memory.data() + samples_);
  return t;
}

DoneSteps::Snapshot DoneSteps::snapshot() const {
  const std::lock_guard lock(mutex_);
  return {steps_, trace_ == nullptr ? kept_ : copy()};
}

void DoneSteps::publish(const trace::RankTrace& trace, std::int64_t steps) {
  const std::lock_guard lock(mutex_);
  trace_ = &trace;
  steps_ = steps;
  windows_ = trace.steps.size();
  records_ = trace.records.size();
  samples_ = trace.memory.size();
}

void DoneSteps::withdraw() {
  const std::lock_guard lock(mutex_);
  if (trace_ == nullptr) return;
  kept_ = copy();
  trace_ = nullptr;
}
namespace {

/// Changes with the size of anything that travels as it lies in memory.
constexpr std::uint64_t kLayout = 0x6f757463'6f6d6532ULL ^ (sizeof(trace::Record) << 1) ^
                                  (sizeof(trace::StepWindow) << 9) ^ (sizeof(trace::MemorySample) << 17) ^
                                  (sizeof(Activity) << 25) ^ (sizeof(PoolStatistics) << 33) ^
                                  (sizeof(backend::WireBytes) << 41) ^ (sizeof(GpuSample) << 49) ^
                                  (sizeof(GpuErrors) << 53) ^ (sizeof(GpuLimits) << 57);

/// Writes what it is shown.
class Writer {
 public:
  template <class T>
  void operator()(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  template <class T>
  void list(const std::vector<T>& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    (*this)(static_cast<std::uint64_t>(v.size()));
    bytes_.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
  }
  void text(const std::string& v) {
    (*this)(static_cast<std::uint64_t>(v.size()));
    bytes_.append(v);
  }
  /// Elements that are told one by one.
  template <class T, class Each>
  void each(const std::vector<T>& all, Each tell) {
    (*this)(static_cast<std::uint64_t>(all.size()));
    for (const T& one : all) tell(one);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Fills in what it is shown, in the same order.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(T& v) {
    std::memcpy(&v, next(1, sizeof v), sizeof v);
  }
  template <class T>
  void list(std::vector<T>& v) {
    const std::uint64_t count = number();
    const char* source = next(count, sizeof(T));
    v.resize(count);
    std::copy_n(source, count * sizeof(T), reinterpret_cast<char*>(v.data()));
  }
  void text(std::string& v) {
    const std::uint64_t size = number();
    v.assign(next(size, 1), size);
  }
  template <class T, class Each>
  void each(std::vector<T>& all, Each tell) {
    const std::uint64_t count = number();
    for (std::uint64_t i = 0; i < count; ++i) tell(all.emplace_back());
  }
  std::uint64_t number() {
    std::uint64_t n{};
    (*this)(n);
    return n;
  }
  void end() const {
    if (!bytes_.empty()) {
      throw BackendError(fmt::format("the outcome of a rank has {} bytes too many", bytes_.size()));
    }
  }

 private:
  const char* next(std::uint64_t n, std::size_t size) {
    if (n > bytes_.size() / size) {
      throw BackendError(fmt::format("the outcome of a rank is cut short: {} x {} bytes are announced and {} are there",
                                     n, size, bytes_.size()));
    }
    const char* begin = bytes_.data();
    bytes_.remove_prefix(n * size);
    return begin;
  }

  std::string_view bytes_;
};

/// Shows `archive` all of an outcome: a Writer a constant one, a Reader one to be filled in.
template <class Archive, class Outcome>
void show(Archive& archive, Outcome& o) {
  archive(o.trace.rank);
  archive.list(o.trace.steps);
  archive.list(o.trace.records);
  archive.list(o.trace.memory);
  archive.list(o.trace.activities);
  archive.each(o.trace.activity_names, [&](auto& name) { archive.text(name); });
  archive(o.memory);
  archive(o.host_memory);
  archive(o.wire_bytes);
  archive.each(o.device, [&](auto& fact) {
    archive.text(fact.first);
    archive.text(fact.second);
  });
  archive.text(o.host);
  archive(o.early_ns);
}

template <class Archive, class Health>
void show_gpu(Archive& archive, Health& gpu) {
  archive.text(gpu.unknown_because);
  archive(gpu.limits);
  archive.list(gpu.samples);
  archive.list(gpu.xids);
  archive(gpu.xids_left_out);
  archive(gpu.errors);
}

}  // namespace

std::string to_bytes(const RankOutcome& o) {
  Writer w;
  w(kLayout);
  show(w, o);
  w(o.gpu.has_value());
  if (o.gpu) show_gpu(w, *o.gpu);
  return w.take();
}

RankOutcome outcome_from_bytes(std::string_view bytes) {
  Reader r(bytes);
  if (r.number() != kLayout) {
    throw BackendError("the outcome of a rank has another layout: do all ranks run the same program?");
  }
  RankOutcome o;
  show(r, o);
  bool has_gpu{};
  r(has_gpu);
  if (has_gpu) show_gpu(r, o.gpu.emplace());
  r.end();
  return o;
}

void cut_trace(trace::RankTrace& trace, std::int64_t steps, std::int64_t warmup) {
  const std::size_t measured = std::max<std::int64_t>(0, steps - warmup);
  trace.steps.resize(std::min(trace.steps.size(), measured));
  // The host may come to the last op's frees after the lanes are done.
  const std::int64_t end = trace.steps.empty() ? 0 : std::max(trace.steps.back().end_ns, trace.steps.back().issued_ns);
  std::erase_if(trace.records, [&](const trace::Record& record) { return record.step >= steps; });
  std::erase_if(trace.memory, [&](const trace::MemorySample& sample) { return sample.time_ns > end; });
  std::erase_if(trace.activities, [&](const Activity& activity) { return activity.step >= steps; });
}

void cut_outcome(RankOutcome& outcome, std::int64_t steps, std::int64_t warmup) {
  const std::int64_t had = std::ssize(outcome.trace.steps);
  cut_trace(outcome.trace, steps, warmup);
  if (had == 0) return;
  for (std::int64_t& bytes : outcome.wire_bytes) bytes = bytes * std::ssize(outcome.trace.steps) / had;
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
