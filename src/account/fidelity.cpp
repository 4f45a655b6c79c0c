#include "account/fidelity.h"

#include <algorithm>
#include <utility>

#include "account/step_breakdown.h"
#include "clock/collective_kinds.h"
#include "clock/emulated_times.h"
#include "plan/communication.h"

namespace fsdpbench::account {
namespace {

struct Sum {
  double modelled_ns = 0;
  double observed_ns = 0;
};

/// From the moment the last peer had arrived.
Interval transfer_of(const trace::Record& r) { return {std::max(r.begin_ns, r.peers_arrived_ns), r.end_ns}; }

/// By op: whether it is a collective beside which the rank sent nothing else.
std::vector<bool> alone_on_link(const StepRecords& step, int rank) {
  const std::span<const trace::Record> records = step.of(rank);
  std::vector<std::size_t> transfers;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (step.schedule().ops[i].is_collective()) transfers.push_back(i);
  }
  std::ranges::sort(transfers, {}, [&](std::size_t i) { return transfer_of(records[i]).begin; });
  std::vector<bool> alone(records.size(), false);
  std::int64_t busy_until = 0;
  for (std::size_t k = 0; k < transfers.size(); ++k) {
    const Interval mine = transfer_of(records[transfers[k]]);
    const bool last = k + 1 == transfers.size();
    alone[transfers[k]] =
        busy_until <= mine.begin && (last || transfer_of(records[transfers[k + 1]]).begin >= mine.end);
    busy_until = std::max(busy_until, mine.end);
  }
  return alone;
}

class Model {
 public:
  Model(const plan::Groups& groups, const std::vector<plan::ModuleSizes>& sizes, const config::RunConfig& config)
      : groups_(groups), sizes_(sizes), config_(config), link_(config.emulate.link()) {}

  void add(const StepRecords& step) {
    if (config_.emulate.compute_tflops) {
      for (int rank = 0; rank < step.ranks(); ++rank) add_computation(step, rank);
    }
    if (link_) add_transfers(step);
    if (const std::optional<LinkModel> pcie = config_.emulate.pcie()) add_copies(step, *pcie);
  }

  std::optional<Fidelity> result(double ms_per_ns) const {
    Fidelity f;
    double modelled = 0, observed = 0;
    for (const auto& [sum, part] : {std::pair{&compute_, &f.compute}, std::pair{&transfer_, &f.transfer}}) {
      if (sum->modelled_ns <= 0) continue;
      *part = ModelledTime{sum->modelled_ns * ms_per_ns, sum->observed_ns * ms_per_ns};
      modelled += sum->modelled_ns;
      observed += sum->observed_ns;
    }
    if (modelled <= 0) return std::nullopt;
    f.excess_pct = 100 * (observed / modelled - 1);
    return f;
  }

 private:
  void add_computation(const StepRecords& step, int rank) {
    const config::Inject& inject = config_.inject;
    const double slow = inject.slow_rank == rank ? inject.slow_rank_factor : 1.0;
    const double ns_per_flop = slow * 1e9 / (*config_.emulate.compute_tflops * 1e12);
    const std::span<const trace::Record> records = step.of(rank);
    for (std::size_t i = 0; i < records.size(); ++i) {
      const schedule::Op& op = step.schedule().ops[i];
      if (classify(op) != OpClass::computation) continue;
      compute_.modelled_ns += clock::flops_of(op, sizes_) * ns_per_flop;
      compute_.observed_ns += static_cast<double>(records[i].end_ns - records[i].begin_ns);
    }
  }

  /// Nobody shares a direction of a rank's PCIe.
  void add_copies(const StepRecords& step, const LinkModel& pcie) {
    for (std::size_t i = 0; i < step.schedule().ops.size(); ++i) {
      const auto* copy = std::get_if<schedule::Transfer>(&step.schedule().ops[i].work);
      if (copy == nullptr) continue;
      const double seconds = pcie.latency_seconds + static_cast<double>(copy->bytes) / pcie.bytes_per_second;
      for (int rank = 0; rank < step.ranks(); ++rank) {
        const trace::Record& record = step.of(rank)[i];
        transfer_.modelled_ns += seconds * 1e9;
        transfer_.observed_ns += static_cast<double>(record.end_ns - record.begin_ns);
      }
    }
  }

  void add_transfers(const StepRecords& step) {
    std::vector<std::vector<bool>> alone;
    for (int rank = 0; rank < step.ranks(); ++rank) alone.push_back(alone_on_link(step, rank));
    const auto slow_rank = static_cast<int>(config_.inject.slow_link_rank);
    for (std::size_t i = 0; i < step.schedule().ops.size(); ++i) {
      const schedule::Op& op = step.schedule().ops[i];
      if (!op.is_collective()) continue;
      const clock::CollectiveMessage message = clock::message_of(op, groups_);
      for (int rank = 0; rank < step.ranks(); ++rank) {
        const plan::Members peers = groups_.members(op.group(), rank);
        if (peers.first != rank) continue;
        bool all_alone = true, slow = false;
        for (int k = 0; k < peers.count; ++k) {
          all_alone = all_alone && alone[peers[k]][i];
          slow = slow || peers[k] == slow_rank;
        }
        if (!all_alone) continue;
        const double seconds = message.seconds_of_latency(*link_) +
                               message.seconds_of_bytes(*link_) * (slow ? config_.inject.slow_link_factor : 1.0);
        for (int k = 0; k < peers.count; ++k) {
          const Interval transfer = transfer_of(step.of(peers[k])[i]);
          transfer_.modelled_ns += seconds * 1e9;
          transfer_.observed_ns += static_cast<double>(transfer.end - transfer.begin);
        }
      }
    }
  }

  const plan::Groups& groups_;
  const std::vector<plan::ModuleSizes>& sizes_;
  const config::RunConfig& config_;
  std::optional<LinkModel> link_;
  Sum compute_, transfer_;
};

}  // namespace

double Fidelity::over_pct() const {
  return 100 * ((1 + std::max(0.0, excess_pct) / 100) * (1 + late_pct.value_or(0) / 100) - 1);
}

bool Fidelity::rated() const { return over_pct() <= kFidelityLimitPct; }

std::optional<Fidelity> emulation_fidelity(const RunView& run, const plan::Groups& groups,
                                           const std::vector<plan::ModuleSizes>& sizes, const config::RunConfig& config,
                                           const RunMetrics& metrics) {
  Model model(groups, sizes, config);
  const MiddleSteps middle = middle_steps(run);
  for (const std::size_t s : middle.indices) model.add(run.steps()[s]);
  std::optional<Fidelity> fidelity = model.result(middle.ms_per_ns);
  const config::Inject& inject = config.inject;
  const bool injected = inject.jitter_us > 0 || inject.host_delay_us > 0 || inject.delay_us > 0;
  if (fidelity && fidelity->compute && metrics.bound_ratio && !injected) {
    fidelity->late_pct = 100 * (*metrics.bound_ratio - 1);
  }
  return fidelity;
}

}  // namespace fsdpbench::account
