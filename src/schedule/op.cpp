#include "schedule/op.h"

#include <stdexcept>
#include <string>

#include "base/enum_table.h"

namespace fsdpbench::schedule {
namespace {

constexpr EnumNames<OpKind> kOpKindNames{"load_batch",
                                         "cast_replicated",
                                         "cast_shard",
                                         "copy_in",
                                         "unshard",
                                         "all_gather",
                                         "copy_out",
                                         "release",
                                         "host_to_device",
                                         "device_to_host",
                                         "forward",
                                         "recompute",
                                         "backward",
                                         "keep_group_shard",
                                         "reshard",
                                         "post_backward",
                                         "end_backward",
                                         "accumulate_gradients",
                                         "reduce_cast",
                                         "reduce_copy_in",
                                         "reduce_scatter",
                                         "all_reduce",
                                         "tensor_all_reduce",
                                         "tensor_all_gather",
                                         "tensor_reduce_scatter",
                                         "expert_counts",
                                         "expert_dispatch",
                                         "expert_combine",
                                         "finish_gradient",
                                         "gradient_norm",
                                         "gather_norm",
                                         "clip",
                                         "optimizer",
                                         "left_out",
                                         "host_wait",
                                         "host_sync"};
constexpr EnumNames<Phase> kPhaseNames{"forward", "backward", "optimizer"};

/// Operands of each kind of work.
struct OperandsOf {
  Operands operator()(const std::monostate&) const { return {{}, {}}; }
  Operands operator()(const LoadBatch& w) const { return {{}, {w.inputs, w.targets}}; }
  Operands operator()(const Forward& w) const {
    const bool goes_on = w.part > 0;
    return {
        {w.parameters, w.replicated, w.experts, w.input, w.batch_inputs, w.batch_targets, goes_on ? w.saved : kNoBuffer,
         !goes_on                  ? kNoBuffer
         : w.exchange == kNoBuffer ? w.output
                                   : w.exchange},
        {w.saved, w.output, w.workspace, w.loss, w.exchange}};
  }
  Operands operator()(const Backward& w) const {
    return {{w.parameters, w.replicated, w.experts, w.saved, w.input, w.batch_inputs,
             w.begins_stream ? kNoBuffer : w.d_stream, w.part > 0 ? w.exchange : kNoBuffer},
            {w.gradients, w.gradients_replicated, w.gradients_experts, w.workspace, w.d_stream, w.exchange}};
  }
  Operands operator()(const Cast& w) const { return {{w.from}, {w.to}}; }
  Operands operator()(const LayoutCopy& w) const { return {{w.from}, {w.to}}; }
  Operands operator()(const Accumulate& w) const { return {{w.from, w.overwrite ? kNoBuffer : w.sum}, {w.sum}}; }
  Operands operator()(const Collective& w) const { return {{w.input}, {w.output}}; }
  Operands operator()(const SumOfSquares& w) const { return {{w.gradient, w.overwrite ? kNoBuffer : w.sum}, {w.sum}}; }
  Operands operator()(const ClipFactor& w) const { return {{w.sums}, {w.factor}}; }
  Operands operator()(const Transfer& w) const { return {{w.from}, {w.to}}; }
  Operands operator()(const Update& w) const {
    return {{w.gradient, w.clip_factor, w.parameters, w.first_moment, w.second_moment},
            {w.parameters, w.rounded, w.first_moment, w.second_moment}};
  }
};

}  // namespace

Operands Op::operands() const { return std::visit(OperandsOf{}, work); }

int part_of(const Op& op) {
  if (const auto* forward = std::get_if<Forward>(&op.work)) return forward->part;
  if (const auto* backward = std::get_if<Backward>(&op.work)) return backward->part;
  return -1;
}

CollectiveKind collective_kind(OpKind kind) {
  switch (kind) {
    case OpKind::all_gather:
    case OpKind::tensor_all_gather:
    case OpKind::gather_norm: return CollectiveKind::all_gather;
    case OpKind::reduce_scatter:
    case OpKind::tensor_reduce_scatter: return CollectiveKind::reduce_scatter;
    case OpKind::all_reduce:
    case OpKind::tensor_all_reduce: return CollectiveKind::all_reduce;
    case OpKind::expert_counts:
    case OpKind::expert_dispatch:
    case OpKind::expert_combine: return CollectiveKind::all_to_all;
    default: throw std::logic_error("no collective: " + std::string(to_string(kind)));
  }
}

plan::CommunicationVolume communication_volume(const Schedule& schedule, const plan::Groups& groups) {
  plan::CommunicationVolume volume;
  for (const Op& op : schedule.ops) {
    if (!op.is_collective()) continue;
    const int ranks = groups.size(op.group());
    const double sent = static_cast<double>(op.collective()->bytes() * (ranks - 1));
    switch (collective_kind(op.kind)) {
      case CollectiveKind::all_gather: volume.all_gather += sent; break;
      case CollectiveKind::reduce_scatter: volume.reduce_scatter += sent; break;
      case CollectiveKind::all_reduce: volume.all_reduce += 2 * sent / ranks; break;
      case CollectiveKind::all_to_all: volume.all_to_all += sent; break;
      case CollectiveKind::broadcast:
      case CollectiveKind::send_recv: break;
    }
  }
  return volume;
}

std::string_view to_string(OpKind kind) { return kOpKindNames[kind]; }

std::string_view to_string(Phase phase) { return kPhaseNames[phase]; }

}  // namespace fsdpbench::schedule
