#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "clock/contention.h"
#include "clock/measured_host.h"
#include "schedule/training.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// Op times of a finished run: by step, rank and op, a collective from the arrival of its last peer, so that
/// waiting for others is nobody's time.
class MeasuredTimes {
 public:
  static constexpr std::int64_t kNone = -1;  ///< was not measured

  /// `run` must live on. `traces`: by rank, all ranks and the same steps, at least one (account::RunView has checked
  /// that). `hop_ns`: what a hop is known to take (a modelled link); absent: it is fitted. `shared_link`: transfers of
  /// two communicators of a rank share its link in fair shares, so what each would have taken alone is found out.
  /// `slowdown`: likewise of computation beside collectives and the other way round; empty: that stays in the times.
  /// `one_fabric`: links of one speed join all ranks, so that collectives of one group tell about those of another.
  MeasuredTimes(const schedule::Training& run, std::span<const trace::RankTrace> traces, std::optional<double> hop_ns,
                bool shared_link, const SlowdownOf& slowdown = {}, bool one_fabric = true);

  const schedule::Training& run() const { return *run_; }
  bool shared_link() const { return shared_link_; }
  bool one_fabric() const { return one_fabric_; }
  std::size_t ranks() const { return traces_.size(); }
  std::size_t first_step() const { return first_; }  ///< the first one that was measured
  std::size_t steps() const { return ns_.size(); }
  /// The schedule of measured step number first_step() + step.
  const schedule::Schedule& schedule_of(std::size_t step) const { return run_->schedules.of_step(first_ + step); }
  /// By op of that schedule. A gap is filled with the median of the same op in other steps.
  std::span<const std::int64_t> ns(std::size_t step, std::size_t rank) const { return ns_[step][rank]; }
  /// By op: what the host took to issue it; kNone for host ops and where nothing tells.
  std::span<const std::int64_t> issue_ns(std::size_t step, std::size_t rank) const { return issue_[step][rank]; }

  /// Times by rank and op.
  using Table = std::vector<std::vector<std::int64_t>>;
  /// As if `run`, a training of this one's ranks, had been measured for one step, its first, and ops had taken this.
  /// `run` must live on.
  MeasuredTimes with_step(const schedule::Training& run, Table ns, Table issue) const;

  /// Time by size over `ops` of the last step's schedule: the median of each over steps and ranks. Collectives: by
  /// hops, as `hop_ns` says if it is known.
  LineFit fit(const std::vector<int>& ops) const;

  /// Dependence of collectives of one kind and group on their size.
  struct Link {
    schedule::OpKind kind = schedule::OpKind::all_gather;
    plan::Group group = plan::Group::none;
    LineFit fit;  ///< nanoseconds a hop, and a byte on the wire
  };
  std::vector<Link> links() const;

  /// The rank whose compute lane is busy longest in the median step, and that time over the median of the others'; -1
  /// if there is one rank.
  struct Straggler {
    int rank = -1;
    double ratio = 1;
  };
  Straggler straggler() const;

 private:
  MeasuredTimes(const MeasuredTimes& like, const schedule::Training& run, Table ns, Table issue);
  std::span<const trace::Record> records(std::size_t step, std::size_t rank) const;
  void find_alone(std::size_t step);
  void take_out(const SlowdownOf& slowdown, std::size_t step);
  void fill_gaps();

  const schedule::Training* run_;
  std::span<const trace::RankTrace> traces_;
  std::optional<double> hop_ns_;
  bool shared_link_, one_fabric_;
  std::size_t first_ = 0;
  std::vector<std::size_t> first_records_;  // by step
  std::vector<Table> ns_, issue_;           // by step
};

}  // namespace fsdpbench::clock
