#include "backend/cpu/lane_worker.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {
namespace {

double causal_forward_flops(const AttentionShape& shape) {
  const double scores = static_cast<double>(shape.batch) * static_cast<double>(shape.heads) *
                        static_cast<double>(shape.seq) * static_cast<double>(shape.seq);
  return 2.0 * scores * static_cast<double>(shape.head_dim);
}

}  // namespace

void EmulatedKernels::gemm(const Gemm& gemm) {
  add_flops(2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k));
}

void EmulatedKernels::attention(const AttentionCall& call) { add_flops(causal_forward_flops(call.shape)); }

void EmulatedKernels::attention_backward(const AttentionBackwardCall& call) {
  add_flops(2.5 * causal_forward_flops(call.shape));
}

void PcieKernels::copy(const void* source, void* target, std::int64_t bytes) {
  if (moves_) std::memcpy(target, source, bytes);
  add_nanoseconds((pcie_.latency_seconds + static_cast<double>(bytes) / pcie_.bytes_per_second) * 1e9);
}

LaneWorker::LaneWorker(launch::Abort& abort, LaneSettings settings)
    : abort_(abort),
      settings_(std::move(settings)),
      ring_(kCapacity),
      work_(abort),
      progress_(abort),
      nap_(abort),
      thread_([this] { run(); }) {}

LaneWorker::~LaneWorker() { join(); }

void LaneWorker::join() {
  closing_.store(true);
  work_.notify();
  if (thread_.joinable()) thread_.join();
}

void LaneWorker::push(LaneItem&& item) {
  const std::int64_t position = pushed();
  if (!completed(position + 1 - kCapacity)) wait_completed(position + 1 - kCapacity);
  ring_[position % kCapacity] = std::move(item);
  pushed_.store(position + 1);
  work_.notify();
}

void LaneWorker::wait_completed(std::int64_t position) {
  progress_.wait([&] { return completed(position); });
}

void LaneWorker::run() {
  try {
    setup_lane_thread(fmt::format("r{} {}", settings_.rank, to_string(settings_.lane)), settings_.urgency);
    const CoreWait cores;
    std::unique_ptr<Kernels> kernels;
    EmulatedKernels* emulated = nullptr;
    if (settings_.pcie) {
      auto made = std::make_unique<PcieKernels>(*settings_.pcie, !settings_.flops_per_s);
      emulated = made.get();
      kernels = std::move(made);
    } else if (settings_.flops_per_s) {
      auto made = std::make_unique<EmulatedKernels>(*settings_.flops_per_s);
      emulated = made.get();
      kernels = std::move(made);
    } else {
      try {
        kernels = settings_.kernels();
      } catch (...) {
        rethrow_with_names("start");
      }
    }
    for (std::int64_t next = 0;; ++next) {
      wait(cores, work_, [&] { return pushed_.load() > next || closing_.load(); });
      abort_.throw_if_set();
      if (pushed_.load() == next) return;
      LaneItem& item = ring_[next % kCapacity];
      execute(item, cores, *kernels, emulated);
      yield_to_prompt_lanes();
      item = {};  // what the task owns ends with the op, not with the ring's next lap
      completed_.store(next + 1);
      progress_.notify();
    }
  } catch (...) {
    abort_.set(std::current_exception());
  }
}

template <class Ready>
void LaneWorker::wait(const CoreWait& cores, WaitPoint& point, Ready ready) {
  if (!stamps_ || ready()) return point.wait(ready);
  const std::int64_t before = cores.total_ns();
  point.wait(ready);
  core_wait_ns_ += cores.total_ns() - before;
}

void LaneWorker::execute(LaneItem& item, const CoreWait& cores, Kernels& kernels, EmulatedKernels* emulated) try {
  if (item.wait_for) {
    return wait(cores, item.wait_for->progress_, [&] { return item.wait_for->completed(item.wait_position); });
  }
  stamps_ = stamps_ || item.stamp != nullptr;
  Stamp unwanted;
  Stamp& stamp = item.stamp ? *item.stamp : unwanted;
  stamp.core_wait_ns = std::exchange(core_wait_ns_, 0);
  stamp.peers_arrived_ns = stamp.link_ns = 0;
  if (item.collective) return item.collective(stamp);
  stamp.begin_ns = now_ns();
  run_task(item, kernels, emulated);
  stamp.end_ns = now_ns();
} catch (...) {
  rethrow_with_names(item.name);
}

void LaneWorker::run_task(const LaneItem& item, Kernels& kernels, EmulatedKernels* emulated) {
  const std::int64_t begin = now_ns();
  item.task(kernels);
  if (emulated) {
    sleep_until(begin + emulated->take_nanoseconds());
  } else if (settings_.slowdown > 1.0) {
    const std::int64_t end = now_ns();
    sleep_until(end + whole_ns(static_cast<double>(end - begin) * (settings_.slowdown - 1.0)));
  }
}

void LaneWorker::sleep_until(std::int64_t deadline_ns) {
  if (now_ns() < deadline_ns) nap_.wait_until(deadline_ns, [] { return false; });
}

void LaneWorker::rethrow_with_names(const char* op) const {
  const auto where = [&](const char* what) {
    return fmt::format("rank {}, lane {}, op {}: {}", settings_.rank, to_string(settings_.lane), op, what);
  };
  try {
    throw;
  } catch (const launch::Stopped&) {
    throw;
  } catch (const std::exception& e) {
    throw BackendError(where(e.what()));
  } catch (...) {
    throw BackendError(where("an unknown exception"));
  }
}

}  // namespace fsdpbench::backend::cpu
