#include <fmt/format.h>

#include "foreign/dialect.h"

namespace fsdpbench::foreign::corpus {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Phase;

/// Where an op stands among the others of its step.
class Place {
 public:
  Place(const std::vector<Op>& ops, std::size_t index) : ops_(ops), index_(index) {}

  const Op& op() const { return ops_[index_]; }
  /// Unit of the op, or of the next one that has a unit: that is what a wait of the host is for.
  int unit() const {
    for (std::size_t i = index_; i < ops_.size(); ++i) {
      if (ops_[i].unit >= 0) return ops_[i].unit;
    }
    return 0;
  }
  /// In whose hook a prefetch is issued: that of the unit that computes next, or, after its computation, computed last.
  int hook(bool after) const {
    const auto computes = [](const Op& o) { return o.kind == OpKind::forward || o.kind == OpKind::backward; };
    if (after) {
      for (std::size_t i = index_; i-- > 0;) {
        if (computes(ops_[i])) return ops_[i].unit;
      }
    }
    for (std::size_t i = index_; i < ops_.size(); ++i) {
      if (computes(ops_[i])) return ops_[i].unit;
    }
    return 0;
  }
  /// Whether a unit computes between here and the end of the op's phase.
  bool computes_again() const {
    for (std::size_t i = index_; i < ops_.size() && ops_[i].phase == op().phase; ++i) {
      if (ops_[i].kind == OpKind::forward || ops_[i].kind == OpKind::backward) return true;
    }
    return false;
  }
  /// The next op that is not the host's own.
  Place next_op() const {
    std::size_t i = index_;
    while (i + 1 < ops_.size() && ops_[i].is_host()) ++i;
    return {ops_, i};
  }
  bool gathers() const {
    return op().kind == OpKind::copy_in || op().kind == OpKind::all_gather || op().kind == OpKind::cast_shard;
  }
  bool reduces() const {
    return op().kind == OpKind::reduce_cast || op().kind == OpKind::reduce_copy_in ||
           op().kind == OpKind::reduce_scatter || op().kind == OpKind::all_reduce ||
           op().kind == OpKind::finish_gradient;
  }

 private:
  const std::vector<Op>& ops_;
  std::size_t index_;
};

std::vector<Range> fsdp2(const Place& at, const std::vector<std::string>& labels) {
  const Op& op = at.op();
  const int unit = at.unit();
  const auto range = [&](std::string_view what, int of) {
    const std::string& label = labels[of];
    return Range{fmt::format("FSDP::{}{}", what, label.empty() ? "" : fmt::format(" ({})", label)), of};
  };
  const bool backward = op.phase == Phase::backward;
  if (at.gathers()) {
    const int hook = op.prefetch ? at.hook(false) : unit;
    std::vector<Range> path{range(backward ? "pre_backward" : "pre_forward", hook)};
    if (op.prefetch) {
      path.push_back({fmt::format("FSDP::{}_prefetch for {}", backward ? "backward" : "forward", labels[unit]), unit});
    }
    path.push_back(range("all_gather", unit));
    return path;
  }
  if (op.kind ==
      OpKind::release) {  // what was held until here: the gather before this one, the last input of a reduction
    if (!backward) return {range(at.computes_again() ? "pre_forward" : "post_forward", at.hook(false))};
    const int hook = at.hook(true);
    if (hook == 0) return {{"FSDP::root_post_backward_callback", 0}, {"FSDP::post_backward_rs_wait ()", 0}};
    return {range("post_backward_rs_wait", hook)};
  }
  if (op.kind == OpKind::copy_out) {
    return {range(backward ? "pre_backward" : "pre_forward", unit), range("all_gather_copy_out", unit)};
  }
  if (op.kind == OpKind::reshard && backward && unit == 0) {
    return {{"FSDP::root_post_backward_callback", 0}, range("post_backward_reshard", unit)};
  }
  if (op.kind == OpKind::reshard) return {range(backward ? "post_backward_reshard" : "post_forward", unit)};
  if (at.reduces() && unit == 0) return {{"FSDP::root_post_backward_callback", 0}, range("post_backward_reduce", unit)};
  if (at.reduces()) return {range("post_backward_reduce", unit)};
  return {};
}

std::vector<Range> fsdp1(const Place& at) {
  const Op& op = at.op();
  const int unit = at.unit();
  const auto range = [](std::string_view what, int of) {
    return Range{fmt::format("FullyShardedDataParallel.{}", what), of};
  };
  if (op.kind == OpKind::host_wait && !at.next_op().op().is_host()) {  // the limiter's, before a gather
    std::vector<Range> path = fsdp1(at.next_op());
    path.push_back(range("rate_limiter", unit));
    return path;
  }
  const bool gathers = at.gathers() || op.kind == OpKind::unshard;
  if (op.phase == Phase::forward && op.kind != OpKind::load_batch) {
    std::vector<Range> path{range("forward", 0)};
    const int hook = gathers && op.prefetch ? at.hook(false) : unit;
    if (hook != 0) path.push_back(range("forward", hook));
    if (gathers) path.push_back(range("_pre_forward", hook));
    if (gathers && op.prefetch) path.push_back(range("_pre_forward_prefetch", hook));
    if (op.kind == OpKind::reshard) path.push_back(range("_post_forward", unit));
    return path;
  }
  if (op.phase == Phase::backward) {
    if (gathers) {
      const int hook = op.prefetch ? at.hook(false) : unit;
      if (op.prefetch && hook == unit) {  // nothing computes between: behind the unit that has computed
        return {range("_post_backward_hook", at.hook(true)), range("_post_backward_prefetch", at.hook(true))};
      }
      std::vector<Range> path{range("_pre_backward_hook", hook)};
      if (op.prefetch) path.push_back(range("_pre_backward_prefetch", hook));
      return path;
    }
    if (at.reduces() || op.kind == OpKind::reshard || op.kind == OpKind::post_backward) {
      return {range("_post_backward_hook", unit)};
    }
  }
  return {};
}

std::vector<Range> deepspeed(const Place& at) {
  if (!at.gathers() && at.op().kind != OpKind::host_wait) return {};
  const int hook = at.op().prefetch ? at.hook(false) : at.unit();
  return {{at.op().phase == Phase::backward ? "PreBackwardFunctionForModuleBackward" : "PreBackwardFunctionForModule",
           hook, true}};
}

std::vector<Range> megatron(const Place& at) {
  if (!at.gathers()) return {};
  return {{at.op().phase == Phase::backward ? "RegisterFSDPBackwardFunctionBackward" : "RegisterFSDPBackwardFunction",
           at.hook(false), true}};
}

std::vector<Range> compiled(const Place& at) {
  if (at.op().phase == Phase::optimizer) return {};
  if (at.op().phase == Phase::backward) {
    return {{"CompiledFunctionBackward", 1, true}, {"## Call CompiledFxGraph fbkw7q3 ##", 1}};
  }
  return {{"Torch-Compiled Region: 0/0", 0}, {"## Call CompiledFxGraph ffwd2k9 ##", 0}};
}

}  // namespace

std::vector<Range> ranges_of(const Dialect& dialect, const std::vector<Op>& ops, std::size_t index,
                             const std::vector<std::string>& unit_labels) {
  const Place at(ops, index);
  if (at.op().phase == Phase::optimizer) {
    const bool updates = at.op().kind == OpKind::optimizer;
    return updates ? std::vector<Range>{{"Optimizer.step#AdamW.step", 0}} : std::vector<Range>{};
  }
  if (!dialect.ranges) return {};
  switch (dialect.framework) {
    case Framework::fsdp2: return fsdp2(at, unit_labels);
    case Framework::fsdp1: return fsdp1(at);
    case Framework::deepspeed: return deepspeed(at);
    case Framework::megatron: return megatron(at);
    case Framework::compiled: return compiled(at);
    case Framework::ddp:
      if (at.op().phase == Phase::forward) return {{"DistributedDataParallel.forward", 0}};
      break;
    case Framework::plain: break;
  }
  return {};
}

}  // namespace fsdpbench::foreign::corpus
