#include "clock/host_issue.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "clock/collective_kinds.h"
#include "clock/op_times.h"
#include "config/presets.h"
#include "schedule/op.h"

namespace fsdpbench::clock {
namespace {

using schedule::Op;
using schedule::OpKind;

/// The host of one engine, and what it calls.
class Issuer {
 public:
  Issuer(const schedule::Training& training, const config::Cluster& cluster, const std::vector<plan::ModuleWork>& work,
         const ComputeCost& compute)
      : training_(training),
        work_(work),
        compute_(compute),
        times_(config::host_times(training.config)),
        factor_(training.config.simulate.host == config::Simulate::Host::own ? 1 : cluster.host.framework_factor),
        launch_us_(cluster.host.kernel_issue_us + factor_ * times_.launch),
        alone_(training.plan.groups.ranks() == 1 ? times_.alone : 1) {
    for (const Op& op : training.schedules.steady().ops) {
      if (op.kind == OpKind::recompute) recomputed_.insert(op.module);
    }
  }

  double us(const Op& op) const {
    // With TORCH_DISTRIBUTED_DEBUG=DETAIL hosts meet before each collective and compare what they are about to call,
    // one rank after the other. Median of the trainings of nanotron that took so long, of every second one.
    constexpr double kCheckOfRank = 280;
    const int checks = training_.config.simulate.collective_checks ? meeting_ranks(op, training_.plan.groups) : 0;
    return kCheckOfRank * checks + engine_us(op);
  }

  /// Once in a step.
  double step_us() const { return factor_ * (times_.step + update() * times_.update); }
  /// DeepSpeed's loop of the second step: at each call over those that follow it, until as many elements were passed
  /// as fsdp.max_reuse_distance says. A share r of the calls: M * M * (r - r * r / 2) pairs.
  double second_step_us() const {
    double calls = 0, elements = 0;
    for (std::size_t m = 0; m < work_.size(); ++m) {
      const int passes = recomputed_.contains(static_cast<int>(m)) ? 3 : 2;
      calls += passes * calls_of(m);
      for (const int p : training_.plan.shapes.modules[m].parameters) {
        elements += passes * static_cast<double>(training_.plan.shapes.parameters[p].numel());
      }
    }
    const double reach = static_cast<double>(training_.config.fsdp.max_reuse_distance);
    const double r = std::min(1.0, reach / elements);
    return factor_ * times_.second_step * calls * calls * (r - r * r / 2);
  }

 private:
  double engine_us(const Op& op) const {
    switch (op.kind) {
      case OpKind::forward: return pass_us(op, Pass::forward);
      case OpKind::recompute: return pass_us(op, Pass::recompute);
      case OpKind::backward: return pass_us(op, Pass::backward);
      case OpKind::optimizer: return factor_ * unit_update_us(training_.plan.units[op.unit]) + launch_us_;
      // With one rank nothing is sent, and hooks run all the same.
      case OpKind::unshard:
        return factor_ * (training_.plan.groups.ranks() == 1 ? alone_ * gather_us(op) : times_.free);
      case OpKind::post_backward: return training_.plan.groups.ranks() == 1 ? factor_ * alone_ * times_.reduce : 0;
      case OpKind::all_gather: return factor_ * gather_us(op) + launch_us_;
      case OpKind::copy_out: return launch_us_ + factor_ * times_.part * parts_of(op);
      case OpKind::reduce_scatter: return factor_ * times_.reduce + launch_us_;
      case OpKind::reshard: return factor_ * alone_ * times_.free;
      default: return op.has_work() ? launch_us_ + (op.lane == Lane::tensor ? factor_ * times_.exchange : 0) : 0;
    }
  }

  double update() const { return training_.config.simulate.fused_optimizer ? times_.fused_update : 1; }

  /// Those of all ranks of all parameters of the unit.
  double parts_of(const Op& op) const {
    const plan::Unit& unit = training_.plan.units[op.unit];
    return static_cast<double>(unit.members.parameters.size()) * training_.plan.groups.size(unit.group);
  }

  double gather_us(const Op& op) const {
    return times_.gather +
           times_.gather_tensor * static_cast<double>(training_.plan.units[op.unit].members.parameters.size());
  }

  double unit_update_us(const plan::Unit& unit) const {
    const auto tensors = static_cast<double>(unit.layout.sharded.size() + unit.layout.replicated.size());
    return update() * (times_.update_unit + times_.update_tensor * tensors) + times_.update_sharded * tensors;
  }

  /// Calls of a block's modules: its products, two norms, activation, attention, feed-forward, itself.
  double calls_of(std::size_t module) const {
    const plan::ModuleWork& work = work_[module];
    if (work.kind != plan::ModuleKind::block) return 2;
    double products = 6;
    for (const plan::Product& p : work.products) products += static_cast<double>(p.launches);
    return products;
  }

  double block_us(Pass pass, bool recomputed) const {
    const double one = pass == Pass::backward ? times_.backward : times_.forward;
    if (training_.config.simulate.compiled) return times_.compiled * one;
    const double turned = training_.config.model.learned_positions > 0 ? one : (1 + times_.rotation) * one;
    const double all = times_.forward + times_.backward;  // 0: no framework's host
    if (!recomputed || all == 0) return turned;
    const double again = training_.config.fsdp.checkpoint_reentrant ? times_.reentrant_checkpoint : times_.checkpoint;
    // Forward and its recomputation take as long, backward the more that it takes of the block without a checkpoint.
    return all * again * turned / (all + times_.forward);
  }

  double pass_us(const Op& op, Pass pass) const {
    const plan::ModuleWork& work = work_[op.module];
    const auto tensors = static_cast<double>(training_.plan.shapes.modules[op.module].parameters.size());
    double us = compute_.launches(work, pass) * launch_us_;
    const bool block = work.kind == plan::ModuleKind::block;
    if (block) us += factor_ * block_us(pass, recomputed_.contains(op.module));
    us += factor_ * times_.visit * calls_of(op.module);
    if (pass == Pass::backward) us += factor_ * times_.tensor * tensors;
    using OfWork = plan::ModuleWork::Pass;
    return us * work.share(pass == Pass::forward     ? OfWork::forward
                           : pass == Pass::recompute ? OfWork::recompute
                                                     : OfWork::backward,
                           schedule::part_of(op));
  }

  const schedule::Training& training_;
  const std::vector<plan::ModuleWork>& work_;
  const ComputeCost& compute_;
  dialects::HostTimes times_;
  double factor_, launch_us_, alone_;
  std::set<int> recomputed_;  // modules
};

}  // namespace

std::vector<std::vector<double>> host_issue(const schedule::Training& training, const config::Cluster& cluster,
                                            const std::vector<plan::ModuleWork>& work, const ComputeCost& compute,
                                            const OpTimes& times) {
  const Issuer issuer(training, cluster, work, compute);
  const double second_us = issuer.second_step_us();
  std::vector<std::vector<double>> issue;
  for (std::size_t step = 0; step < std::max<std::size_t>(times.steps.size(), second_us > 0 ? 3 : 0); ++step) {
    const std::vector<Op>& ops = training.schedules.of_step(step).ops;
    std::vector<double>& of_step = issue.emplace_back(ops.size());
    double left_us = issuer.step_us() + (step == 1 ? second_us : 0);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].is_host()) continue;
      const double us = issuer.us(ops[i]), run_us = times.of_step(step)[i].run_ns * 1e-3;
      const double before_us = ops[i].lane == Lane::compute ? std::max(0.0, us - run_us) : us;
      of_step[i] = std::nearbyint((left_us + before_us) * 1e3);
      left_us = us - before_us;
    }
  }
  return issue;
}

}  // namespace fsdpbench::clock
