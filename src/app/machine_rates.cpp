#include "app/machine_rates.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/kernels.h"
#include "base/clock.h"
#include "base/student.h"

namespace fsdpbench::app {
namespace {

/// Median duration of `work`, in seconds, of as many repetitions as fit, after one to warm up.
double median_seconds(const std::function<void()>& work, double seconds) {
  work();
  std::vector<double> durations;
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  do {
    const std::int64_t begin = now_ns();
    work();
    durations.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
  } while (now_ns() < end);
  return upper_median(std::move(durations));
}

}  // namespace

double measure_gemm(backend::Backend& backend, int ranks, DType dtype, std::int64_t size, double seconds) {
  double total = 0;
  std::mutex mutex;
  backend::BackendOptions options;
  options.ranks = ranks;
  backend.run(options, [&](backend::RankContext& rank) {
    const std::int64_t bytes = size * size * size_of(dtype);
    const auto allocate = [&](std::int64_t n) {
      return rank.device.allocate(n, MemoryCategory::activations, Lane::compute);
    };
    std::byte* a = allocate(bytes);
    std::byte* b = allocate(bytes);
    std::byte* c = allocate(size * size * size_of(DType::f32));
    rank.world.barrier();
    rank.device.enqueue(
        Lane::compute, "gemm",
        [&](backend::Kernels& kernels) {
          kernels.fill_zero(a, bytes);
          kernels.fill_zero(b, bytes);
          const backend::Gemm gemm{.a = a, .b = b, .c = c, .m = size, .n = size, .k = size, .input_dtype = dtype};
          const double cubed = static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
          const double rate = 2 * cubed / median_seconds([&] { kernels.gemm(gemm); }, seconds);
          const std::scoped_lock lock(mutex);
          total += rate;
        },
        nullptr);
    rank.device.synchronize();
    for (std::byte* memory : {a, b, c}) rank.device.free(memory, Lane::compute);
  });
  return total;
}

double measure_memcpy(int threads, std::int64_t bytes, double seconds) {
  std::barrier<> together(threads);
  std::vector<double> rates(threads);
  {
    std::vector<std::jthread> workers;
    for (double& rate : rates) {
      workers.emplace_back([&] {
        const auto size = static_cast<std::size_t>(bytes);
        const auto source = std::make_unique<std::byte[]>(size);  // zeroed: its pages exist
        const auto target = std::make_unique<std::byte[]>(size);
        together.arrive_and_wait();
        const double duration = median_seconds([&] { std::memcpy(target.get(), source.get(), size); }, seconds);
        rate = static_cast<double>(bytes) / duration;
      });
    }
  }
  double total = 0;
  for (const double rate : rates) total += rate;
  return total;
}

std::int64_t measure_timer_lateness_ns() {
  std::vector<std::int64_t> late;
  // On a thread of its own, so that this one keeps its timer slack.
  std::thread([&] {
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (int i = 0; i < 51; ++i) {
      const std::int64_t target = now_ns() + 1'000'000;
      const timespec when{target / 1'000'000'000, target % 1'000'000'000};
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr);
      late.push_back(now_ns() - target);
    }
  }).join();
  return upper_median(std::move(late));
}

}  // namespace fsdpbench::app
