#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "clock/op_times.h"
#include "config/run_config.h"
#include "plan/plan.h"
#include "schedule/training.h"

namespace fsdpbench::tune {

/// Kind of memory that is meant by the memory of a rank.
enum class MemoryKind : std::uint8_t {
  live,      ///< blocks in use: what FSDP's own accounting shows
  reserved,  ///< what the allocator holds
  process,   ///< reserved, and what libraries and communicators take beside it: what nvidia-smi shows
};
/// The enumerator's own name.
std::string_view to_string(MemoryKind kind);

/// Memory that a training needs: from schedule/memory_walk.h, or under PyTorch's allocator (clock/caching_allocator.h).
struct MemoryNeed {
  std::int64_t live = 0;      ///< PoolStatistics::peak_occupied_total; allocated
  std::int64_t reserved = 0;  ///< PoolStatistics::reserved; reserved
};

/// Need of `training` on a machine that has `capacity` bytes for it; 0: no limit. Asked from several threads at
/// once.
using NeedOf = std::function<MemoryNeed(const schedule::Training& training, std::int64_t capacity)>;

/// Memory that a rank may take, and the uncertainty of its predictions.
struct MemoryBudget {
  std::int64_t bytes = 0;  ///< 0: no limit
  MemoryKind kind = MemoryKind::live;
  /// For MemoryKind::process, besides the allocator: the context with its libraries, and each communicator.
  std::int64_t context_bytes = 0;
  std::int64_t communicator_bytes = 0;
  double error = 0;           ///< of what the allocator is predicted to hold, as a part of it
  double overhead_error = 0;  ///< of what lies beside it, likewise
  bool made_up = false;       ///< the job whose memory it is compared with was recognised in traces, which tell none
  bool of_gpu = false;        ///< `bytes` are what a GPU of the cluster has, since nobody said otherwise
  NeedOf need_of = {};        ///< who knows the allocator; empty: it is this program's own pool

  /// Bytes of `need` in this budget's kind of memory. `plan`: of the same training, for its communicators.
  std::int64_t predicted(const MemoryNeed& need, const plan::Plan& plan) const;
  /// By how much that may be wrong: whatever is predicted within it of the budget is not proposed.
  std::int64_t margin(const MemoryNeed& need, const plan::Plan& plan) const;
  bool fits(const MemoryNeed& need, const plan::Plan& plan) const {
    return bytes == 0 || predicted(need, plan) + margin(need, plan) <= bytes;
  }
  /// So much the allocator may hold, at most, in a training of this plan that fits.
  std::int64_t capacity(const plan::Plan& plan) const;
  /// Whether something that needs at least so much live memory can fit at all.
  bool may_fit(std::int64_t live) const { return bytes == 0 || live <= bytes; }

 private:
  std::int64_t beside(const plan::Plan& plan) const;
};

/// The budget of so many bytes for trainings of `config`. What this program's own pool needs is predicted to the byte,
/// so `live` and `reserved` of a configuration that runs on its CPU backend or at given rates have no error.
///
/// Otherwise errors and overheads are assumptions, since nothing measured says them: another framework's allocator
/// holds 3 % more or less than is predicted; a GPU's context and libraries take 1.5 GiB and a communicator 0.5 GiB,
/// each give or take half. `traced_on_gpus`: whether traces in which `config` was recognised are of GPUs; absent: it
/// was not in traces.
MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t bytes, MemoryKind kind,
                           std::optional<bool> traced_on_gpus = {});

/// Time and memory with less of which no order of the same ops can do.
struct Bound {
  double step_ns = 0;
  std::int64_t live_bytes = 0;
};

/// Bounds of the steady schedule, whatever is prefetched, limited or buffered in it: policies that differ only in these
/// issue the same ops in another order.
///
/// [Note: the bound]
/// Time is at least what each lane has to do, what each fabric has to carry, and the longest chain of ops that read
/// what another wrote, where forwards, backwards and updates follow one another as they do in every order: the first
/// gather, all computation, and the last reduction are such a chain. Memory is at least what lives from forward to
/// backward whatever the policy (masters, moments, activations) together with what the op at hand itself touches.
/// `least`: what each op takes at least (LeastTimes::costs).
Bound lower_bound(const schedule::Training& training, const clock::StepCosts& least);

/// The most bytes that are live at a time in the order of issue, in blocks of the pool: no less than any allocator
/// needs for this schedule, in a fraction of the time of schedule/memory_walk.h.
std::int64_t live_in_order(const schedule::Schedule& step);

}  // namespace fsdpbench::tune
