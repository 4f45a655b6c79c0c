#include "hardware/gpu_monitor.h"

#include <pthread.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"

namespace fsdpbench::hardware {
namespace {

constexpr std::size_t kMostXids = 64;

template <class T, class Choose>
std::optional<T> chosen(const std::optional<T>& a, const std::optional<T>& b, Choose choose) {
  if (!a) return b;
  return b ? std::optional<T>(choose(*a, *b)) : a;
}

/// Growth of the counter; a counter that was set back grew from zero.
std::optional<std::uint64_t> grown(const std::optional<std::uint64_t>& before,
                                   const std::optional<std::uint64_t>& now) {
  if (!before || !now) return std::nullopt;
  return *now >= *before ? *now - *before : *now;
}

}  // namespace

GpuSample joined(const GpuSample& sample, const GpuSample& next) {
  const auto least = [](auto a, auto b) { return std::min(a, b); };
  const auto most = [](auto a, auto b) { return std::max(a, b); };
  GpuSample both;
  both.time_ns = sample.time_ns;
  both.until_ns = next.until_ns;
  both.sm_mhz = chosen(sample.sm_mhz, next.sm_mhz, least);
  both.power_mw = chosen(sample.power_mw, next.power_mw, most);
  both.temperature_c = chosen(sample.temperature_c, next.temperature_c, most);
  both.limits = chosen(sample.limits, next.limits, [](ClockLimits a, ClockLimits b) { return a | b; });
  both.pcie_width = chosen(sample.pcie_width, next.pcie_width, least);
  both.pcie_generation = chosen(sample.pcie_generation, next.pcie_generation, least);
  return both;
}

GpuMonitor::GpuMonitor(const std::string& place, Pace pace, const char* library) : pace_(pace) {
  const std::shared_ptr<const Nvml> nvml = Nvml::open(health_.unknown_because, library);
  if (nvml == nullptr) return;
  const Nvml::Handle handle = nvml->gpu_at(place, health_.unknown_because);
  if (handle == nullptr) return;
  gpu_.emplace(nvml, handle);
  health_.limits = gpu_->limits();
  health_.samples.reserve(pace_.most_samples);
  health_.xids.reserve(kMostXids);
  errors_before_ = gpu_->errors();
  xids_ = gpu_->watch_xids();
  thread_ = std::thread([this] { watch(); });
}

GpuMonitor::~GpuMonitor() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (xids_ != nullptr) gpu_->stop_watching(xids_);
}

void GpuMonitor::watch() {
  pthread_setname_np(pthread_self(), "gpu-monitor");
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    const GpuSample sample = gpu_->sample(now_ns());
    lock.lock();
    take_xids();
    if (gpu_->is_lost()) {
      health_.unknown_because = "The GPU is lost: the driver has had no answer from it since.";
      return;
    }
    keep(sample);
    ends_.wait_for(lock, pace_.every, [this] { return ending_; });
  }
}

void GpuMonitor::keep(const GpuSample& sample) {
  std::vector<GpuSample>& all = health_.samples;
  all.push_back(sample);
  if (all.size() < pace_.most_samples) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) all[kept++] = joined(all[i], all[i + 1]);
  if (all.size() % 2 != 0) all[kept++] = all.back();
  all.resize(kept);
  pace_.every *= 2;
}

void GpuMonitor::take_xids() {
  while (xids_ != nullptr) {
    const std::optional<std::uint64_t> code = gpu_->next_xid(xids_);
    if (!code) return;
    if (health_.xids.size() < kMostXids) {
      health_.xids.push_back({now_ns(), *code});
    } else {
      ++health_.xids_left_out;
    }
  }
}

GpuHealth GpuMonitor::health() const {
  const std::lock_guard lock(mutex_);
  GpuHealth health = health_;
  if (!gpu_ || gpu_->is_lost()) return health;
  const GpuErrors now = gpu_->errors();
  health.errors = {grown(errors_before_.ecc_corrected, now.ecc_corrected),
                   grown(errors_before_.ecc_uncorrected, now.ecc_uncorrected),
                   grown(errors_before_.nvlink_replays, now.nvlink_replays),
                   grown(errors_before_.nvlink_recoveries, now.nvlink_recoveries),
                   grown(errors_before_.nvlink_crc, now.nvlink_crc)};
  return health;
}

}  // namespace fsdpbench::hardware
