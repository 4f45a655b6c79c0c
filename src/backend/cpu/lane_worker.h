#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/thread_setup.h"
#include "backend/cpu/wait_point.h"
#include "backend/device.h"
#include "backend/kernels.h"
#include "base/clock.h"
#include "base/link_model.h"
#include "launch/clock_offset.h"

namespace fsdpbench::backend::cpu {

/// Kernels that touch no memory and only add up the time they would take: FLOPs / rate for matrix products and
/// attention, nothing for everything else. The lane lets that time pass once per op, so that the errors of sleeping
/// do not add up over an op's kernels.
class EmulatedKernels : public Kernels {
 public:
  explicit EmulatedKernels(double flops_per_s) : nanoseconds_per_flop_(1e9 / flops_per_s) {}

  /// Time of all kernels called since the last call.
  std::int64_t take_nanoseconds() { return whole_ns(std::exchange(nanoseconds_, 0.0)); }

  void gemm(const Gemm& gemm) override;
  /// Causal: half of the 4 * batch * heads * seq^2 * head_dim FLOPs of full attention; the backward 2.5 times that.
  void attention(const AttentionCall& call) override;
  void attention_backward(const AttentionBackwardCall& call) override;
  void delay(std::int64_t nanoseconds) override { nanoseconds_ += static_cast<double>(nanoseconds); }

  void rms_norm(const RmsNormCall&) override {}
  void rms_norm_backward(const RmsNormBackwardCall&) override {}
  void rotary(const AttentionShape&, std::byte*, std::byte*, float, bool) override {}
  void swiglu(const SwigluCall&) override {}
  void swiglu_backward(const SwigluBackwardCall&) override {}
  void embedding(const EmbeddingCall&) override {}
  void embedding_backward(const EmbeddingBackwardCall&) override {}
  void cross_entropy(const CrossEntropyCall&) override {}
  void cross_entropy_terms(const CrossEntropyCall&, float*) override {}
  void cross_entropy_of_terms(const CrossEntropyCall&, const float*, int) override {}
  void mean_squared_error(const MeanSquaredErrorCall&) override {}
  void add_bias(const RowShape&, std::byte*, const std::byte*) override {}
  void bias_backward(const RowShape&, const std::byte*, const Elements&) override {}
  void relu(const std::byte*, std::byte*, std::int64_t, DType) override {}
  void relu_backward(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void add(const std::byte*, const std::byte*, std::byte*, std::int64_t, DType) override {}
  void cast(const ConstElements&, const Elements&, std::int64_t, float) override {}
  void accumulate(const ConstElements&, float*, std::int64_t, float) override {}
  void copy_runs(const ConstElements&, const Elements&, std::span<const CopyRun>) override {}
  void fill_zero(std::byte*, std::int64_t) override {}
  void upload(const void*, std::byte*, std::int64_t) override {}
  void download(const std::byte*, void*, std::int64_t) override {}
  void sum_of_squares(const ConstElements&, std::int64_t, double, double*, bool) override {}
  void clip_factor(const double*, std::int64_t, double, float*) override {}
  void sgd(const ParameterUpdate&, const SgdStep&) override {}
  void adamw(const ParameterUpdate&, const AdamWStep&) override {}

 protected:
  void add_nanoseconds(double nanoseconds) { nanoseconds_ += nanoseconds; }

 private:
  void add_flops(double flops) { nanoseconds_ += flops * nanoseconds_per_flop_; }

  double nanoseconds_per_flop_;
  double nanoseconds_ = 0;
};

/// Copies over a modelled PCIe: bytes / bandwidth + latency each. One lane a direction, so nobody shares it.
class PcieKernels final : public EmulatedKernels {
 public:
  /// `moves`: bytes are copied, too.
  PcieKernels(const LinkModel& pcie, bool moves) : EmulatedKernels(1), pcie_(pcie), moves_(moves) {}

  void upload(const void* source, std::byte* target, std::int64_t bytes) override { copy(source, target, bytes); }
  void download(const std::byte* source, void* target, std::int64_t bytes) override { copy(source, target, bytes); }

 private:
  void copy(const void* source, void* target, std::int64_t bytes);

  LinkModel pcie_;
  bool moves_;
};

class LaneWorker;
class EmulatedKernels;

/// Function that makes the Kernels of one lane, on that lane's thread.
using KernelsFactory = std::function<std::unique_ptr<Kernels>()>;

/// A collective: writes the whole stamp itself, for only it knows when its turn comes and ends.
using CollectiveTask = std::function<void(Stamp& stamp)>;

/// One element of a lane's queue: exactly one of task, collective and wait_for is set.
struct LaneItem {
  const char* name = "";
  Device::Task task = nullptr;
  CollectiveTask collective = nullptr;
  LaneWorker* wait_for = nullptr;  ///< go on when the first `wait_position` items of this lane are done
  std::int64_t wait_position = 0;
  Stamp* stamp = nullptr;
};

struct LaneSettings {
  int rank = 0;
  Lane lane = Lane::compute;
  Urgency urgency = Urgency::normal;
  KernelsFactory kernels;             ///< not called if compute is emulated
  std::optional<double> flops_per_s;  ///< present: compute is emulated, and this fast
  double slowdown = 1.0;              ///< of real tasks: each takes this many times as long
  std::optional<LinkModel> pcie;      ///< present: copies take as long as this says
};

/// A thread that works off a bounded queue in order. One host thread pushes; anybody may wait for a position.
/// The first failure aborts the team; after an abort the thread ends with what is left in the queue undone.
class LaneWorker {
 public:
  static constexpr std::int64_t kCapacity = 1024;

  LaneWorker(launch::Abort& abort, LaneSettings settings);
  /// Works off the queue (unless aborted) and ends the thread.
  ~LaneWorker();
  LaneWorker(const LaneWorker&) = delete;
  LaneWorker& operator=(const LaneWorker&) = delete;

  /// Puts `item` at the end. Blocks only while kCapacity items wait; throws launch::Stopped if aborted meanwhile.
  void push(LaneItem&& item);
  /// Number of items pushed so far: the position of the latest. For the pushing thread.
  std::int64_t pushed() const { return pushed_.load(std::memory_order_relaxed); }
  bool completed(std::int64_t position) const { return completed_.load() >= position; }
  /// Blocks until the first `position` items are done; throws launch::Stopped if aborted before that.
  void wait_completed(std::int64_t position);
  /// Waits for the end of the thread. To be called after an abort (or by the destructor) only.
  void join();

 private:
  void run();
  /// Sleeps on `point` until `ready()`, and from the first stamped op on counts how much of that it lacked a core.
  template <class Ready>
  void wait(const CoreWait& cores, WaitPoint& point, Ready ready);
  void execute(LaneItem& item, const CoreWait& cores, Kernels& kernels, EmulatedKernels* emulated);
  void run_task(const LaneItem& item, Kernels& kernels, EmulatedKernels* emulated);
  void sleep_until(std::int64_t deadline_ns);
  [[noreturn]] void rethrow_with_names(const char* op) const;

  launch::Abort& abort_;
  const LaneSettings settings_;
  std::vector<LaneItem> ring_;
  alignas(64) std::atomic<std::int64_t> pushed_{0};
  alignas(64) std::atomic<std::int64_t> completed_{0};
  std::atomic<bool> closing_{false};
  WaitPoint work_;      ///< the worker waits for items
  WaitPoint progress_;  ///< others wait for completions
  WaitPoint nap_;       ///< the worker takes its time; nobody but an abort wakes it
  // The worker's own:
  bool stamps_ = false;            // ops are stamped
  std::int64_t core_wait_ns_ = 0;  // since the op before
  std::thread thread_;
};

}  // namespace fsdpbench::backend::cpu
