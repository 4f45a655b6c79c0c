#include "account/step_breakdown.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace fsdpbench::account {

namespace {

void check_identity(bool holds, const StepRecords& step, int rank, const std::string& identity) {
  if (holds) return;
  throw Error(fmt::format("rank {}, step {}: {} does not hold; these measurements must not be used", rank,
                          step.number(), identity),
              ExitCode::check_failed);
}

}  // namespace

OpClass classify(const schedule::Op& op) {
  using schedule::OpKind;
  if (op.lane == Lane::host_compute && op.has_work()) return OpClass::host_update;
  switch (op.kind) {
    case OpKind::forward:
    case OpKind::recompute:
    case OpKind::backward:
    case OpKind::accumulate_gradients:
    case OpKind::gradient_norm:
    case OpKind::clip:
    case OpKind::optimizer: return OpClass::computation;
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::all_reduce:
    case OpKind::tensor_all_reduce:
    case OpKind::tensor_all_gather:
    case OpKind::tensor_reduce_scatter:
    case OpKind::expert_counts:
    case OpKind::expert_dispatch:
    case OpKind::expert_combine:
    case OpKind::gather_norm: return OpClass::communication;
    case OpKind::load_batch:
    case OpKind::cast_replicated:
    case OpKind::host_to_device:
    case OpKind::device_to_host:
    case OpKind::cast_shard:
    case OpKind::copy_in:
    case OpKind::copy_out:
    case OpKind::keep_group_shard:
    case OpKind::reduce_cast:
    case OpKind::reduce_copy_in:
    case OpKind::finish_gradient: return OpClass::copy;
    case OpKind::unshard:
    case OpKind::release:
    case OpKind::reshard:
    case OpKind::post_backward:
    case OpKind::end_backward:
    case OpKind::left_out:
    case OpKind::host_wait:
    case OpKind::host_sync: return OpClass::none;
  }
  return OpClass::none;
}

StepIntervals intervals_of(const Interval& window, StepRuns runs) {
  StepIntervals result;
  result.window = unite({window});
  result.computation = unite(std::move(runs.computation));
  result.communication = unite(std::move(runs.communication));
  const IntervalSet both = unite(result.computation, result.communication);
  const IntervalSet busy = unite(both, unite(std::move(runs.copies)));
  result.exposed_communication = subtract(result.communication, result.computation);
  result.exposed_copies = subtract(busy, both);
  result.idle = subtract(result.window, busy);
  return result;
}

StepIntervals intervals_of(const StepRecords& step, int rank) {
  const trace::StepWindow& window = step.window(rank);
  StepRuns runs;
  const std::span<const trace::Record> records = step.of(rank);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const OpClass op_class = classify(step.schedule().ops[i]);
    if (op_class == OpClass::none) continue;
    const trace::Record& r = records[i];
    check_identity(window.begin_ns <= r.begin_ns && r.begin_ns <= r.end_ns && r.end_ns <= window.end_ns, step, rank,
                   fmt::format("op {} inside its step", i));
    if (op_class == OpClass::computation) runs.computation.push_back({r.begin_ns, r.end_ns});
    if (op_class == OpClass::communication) runs.communication.push_back({r.begin_ns, r.end_ns});
    if (op_class == OpClass::copy) runs.copies.push_back({r.begin_ns, r.end_ns});
  }
  return intervals_of({window.begin_ns, window.end_ns}, std::move(runs));
}

StepBreakdown& StepBreakdown::operator+=(const StepBreakdown& other) {
  step += other.step;
  computation += other.computation;
  communication += other.communication;
  overlap += other.overlap;
  exposed_communication += other.exposed_communication;
  exposed_copy += other.exposed_copy;
  idle += other.idle;
  return *this;
}

StepBreakdown break_down(const StepIntervals& step, const IntervalSet& span) {
  const auto within = [&](const IntervalSet& set) { return length(intersect(span, set)); };
  StepBreakdown b;
  b.step = within(step.window);
  b.computation = within(step.computation);
  b.communication = within(step.communication);
  b.overlap = within(intersect(step.computation, step.communication));
  b.exposed_communication = within(step.exposed_communication);
  b.exposed_copy = within(step.exposed_copies);
  b.idle = within(step.idle);
  return b;
}

StepBreakdown break_down(const StepRecords& step, int rank) {
  const StepIntervals intervals = intervals_of(step, rank);
  const StepBreakdown b = break_down(intervals, intervals.window);
  check_identity(b.computation + b.stalled() == b.step, step, rank,
                 "compute + exposed communication + exposed copies + idle = step");
  return b;
}

void check_wire_bytes(const plan::CommunicationVolume& expected, std::span<const plan::CommunicationVolume> counted,
                      const plan::Plan& plan, const config::RunConfig& config) {
  const double rounding = static_cast<double>(4 * plan.units.size()) * static_cast<double>(config.train.accumulate) + 1;
  for (std::size_t rank = 0; rank < counted.size(); ++rank) {
    const auto check = [&](const char* kind, double bytes, double scheduled, double allowed) {
      if (std::abs(bytes - scheduled) <= allowed) return;
      throw Error(
          fmt::format("rank {}: {} moved {} bytes a step where the schedule says {}; these measurements must not "
                      "be used",
                      rank, kind, bytes, scheduled),
          ExitCode::check_failed);
    };
    check("all_gather", counted[rank].all_gather, expected.all_gather, 0.5);
    check("reduce_scatter", counted[rank].reduce_scatter, expected.reduce_scatter, 0.5);
    check("all_to_all", counted[rank].all_to_all, expected.all_to_all, 0.5);
    check("all_reduce", counted[rank].all_reduce, expected.all_reduce, rounding);
  }
}

void check_memory(const PoolStatistics& expected, std::span<const PoolStatistics> measured) {
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    if (measured[rank].peak_occupied_total <= expected.peak_occupied_total) continue;
    throw Error(fmt::format("rank {}: the pool peaked at {} bytes where the plan estimates {}; these measurements must "
                            "not be used",
                            rank, measured[rank].peak_occupied_total, expected.peak_occupied_total),
                ExitCode::check_failed);
  }
}

}  // namespace fsdpbench::account
