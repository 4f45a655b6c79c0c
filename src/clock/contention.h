#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "clock/op_times.h"
#include "config/calibration.h"
#include "config/run_config.h"
#include "plan/plan.h"
#include "schedule/training.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// Factor by which an op of `schedule` is slower while these others of it run beside it on its rank: collectives
/// beside computation or a copy, computation beside a collective. At least 1.
using SlowdownOf =
    std::function<double(const schedule::Schedule& schedule, std::size_t op, std::span<const std::size_t> beside)>;

/// By op of `schedule`: what it would have taken with nothing beside it, as a part of what it took. In the stretches of
/// its time in which others ran it got on at a rate of 1/slow-down; collectives run from the arrival of their last
/// rank. `records`: of one step of one rank.
std::vector<double> parts_alone(const schedule::Schedule& schedule, std::span<const trace::Record> records,
                                const SlowdownOf& slowdown);

/// Lengthens the steady step's ops by what runs beside them. What runs beside them depends on how long they take, so
/// `times` are walked, ops are lengthened by what ran beside them, and walked again, a few times, until that changes
/// the step by less than 1/1000. Costs are lengthened by what runs beside them on rank 0, given times by what does so
/// on their own rank, in every step with this schedule.
void add_contention(const schedule::Training& training, const SlowdownOf& slowdown, OpTimes& times);

/// Slow-downs of ops of `config` by those beside them, by a machine's measured matrix; empty if that is.
/// `groups`: of its plan; they must live on.
///
/// A module's computation is slowed as its matrix products are, weighted by FLOPs: by the cells of the nearest shape
/// and message (least sum of differences of logarithms) among those of the configuration's dtype and nccl.max_ctas, or
/// what comes nearest to these. Collectives that sum up are taken as reduce-scatters, all others as all-gathers; of
/// several at once the largest message counts. Ops without products, and what was measured to be faster beside others,
/// take what they take alone.
SlowdownOf measured_slowdown(const std::vector<config::CalibrationSlowdown>& measured, const config::RunConfig& config,
                             const plan::Groups& groups);

/// For GPUs whose matrix nobody measured: a module's computation is as slow beside any collective as it was ever seen
/// to be, by 40 % (8 H100, pytorch/pytorch#179937); collectives take what they take alone.
double most_slowed_computation(const schedule::Schedule& schedule, std::size_t op, std::span<const std::size_t> beside);

}  // namespace fsdpbench::clock
