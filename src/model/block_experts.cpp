// The half of a block that has experts: routed ones, also where ranks split them, and the shared one.
#include <array>

#include "model/block.h"

namespace fsdpbench::model {

/// Computation is counted for experts that are visited equally often; there is room for any other routing.
void Block::set_parts_by_experts(plan::ModuleSizes& sizes) const {
  const plan::ModuleWork work = plan::module_work(model_, batch_.batch, batch_.seq_len, 1, experts_)[1];
  sizes.forward_flops = work.forward_flops();
  sizes.recompute_flops = work.recompute_flops();
  sizes.backward_flops = work.backward_flops();
  set_expert_parts(model_, batch_, experts_, own_visits(), work, sizes);
  for (auto* parts : {&sizes.forward_parts, &sizes.recompute_parts, &sizes.backward_parts}) {
    for (plan::ModulePart& part : *parts) part.room = part.of_experts() ? exchange_.bytes() : 0;
  }
}

/// The feed-forward of experts, from `normed` in the workspace to the block's output.
void Block::experts(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                    const ForwardWorkspace& work) const {
  const backend::Routing& routing = saved.routing;
  shared_expand(kernels, call, saved, work);
  shared_contract(kernels, call, saved, work);
  route(kernels, call, saved, work);
  kernels.dispatch(
      {.routing = routing, .width = model_.width, .dtype = batch_.dtype, .x = work.normed, .y = work.routed});
  apply_experts(kernels, call, saved, work, work.routed, saved.routed, routing.first);
  if (call.output != nullptr) combine(kernels, call, saved, saved.routed);
}

/// See [Note: parts by experts] in model.h.
void Block::forward_by_experts(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                               const ForwardWorkspace& work) const {
  switch (step_of(call.part, false)) {
    case ExpertStep::send:
      norm(kernels, call.input, call.parameters[at_.norm1], work.normed, saved.rstd1);
      attention(kernels, call, saved, work, work.normed, saved.h, call.input);
      norm(kernels, saved.h, call.parameters[at_.norm2], work.normed, saved.rstd2);
      if (overlap() == config::ExpertOverlap::none) {
        shared_expand(kernels, call, saved, work);
        shared_contract(kernels, call, saved, work);
      }
      route(kernels, call, saved, work);
      return kernels.dispatch({.routing = saved.routing,
                               .width = model_.width,
                               .dtype = batch_.dtype,
                               .x = work.normed,
                               .y = call.exchange,
                               .visits = visits_in(call)});
    case ExpertStep::beside_dispatch: return shared_expand(kernels, call, saved, work);
    case ExpertStep::experts:
      regroup(kernels, call, work.first, saved.arrived, false);
      apply_experts(kernels, call, saved, work, saved.arrived, work.routed, work.first);
      return regroup(kernels, call, work.first, work.routed, true);
    case ExpertStep::beside_combine:
      if (overlap() == config::ExpertOverlap::combine) shared_expand(kernels, call, saved, work);
      return shared_contract(kernels, call, saved, work);
    case ExpertStep::receive:
      kernels.cast({call.exchange, batch_.dtype}, {saved.routed, batch_.dtype}, exchange_.own * model_.width, 1.0F);
      if (call.output != nullptr) combine(kernels, call, saved, saved.routed);
  }
}

/// Step of part `part` of a pass: as BlockFlops::expert_parts has them.
Block::ExpertStep Block::step_of(int part, bool backward) const {
  using enum ExpertStep;
  const std::size_t at = part;
  switch (overlap()) {
    case config::ExpertOverlap::both: return std::array{send, beside_dispatch, experts, beside_combine, receive}[at];
    case config::ExpertOverlap::combine:
      if (!backward) return std::array{send, experts, beside_combine, receive}[at];
      break;
    case config::ExpertOverlap::none: break;
  }
  return std::array{send, experts, receive}[at];
}

/// The shared expert's gate and up, from `normed` in the workspace.
void Block::shared_expand(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                          const ForwardWorkspace& work) const {
  if (shares())
    shared_gate_up_.forward(kernels, work.normed, call.parameters.subspan(at_.shared_gate_up), saved.shared);
}

/// The block's output without what routed experts add; nothing in a recomputation.
void Block::shared_contract(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                            const ForwardWorkspace& work) const {
  if (!shares() || call.output == nullptr) return;
  kernels.swiglu({.shape = {batch_.rows(), model_.shared_width(), batch_.dtype},
                  .stride = shared_gate_up_.stride(0),
                  .gate = saved.shared[0],
                  .up = saved.shared[1],
                  .y = work.shared});
  shared_contract_.forward(kernels, work.shared, call.parameters[at_.shared_down], call.output, saved.h);
}

/// Between the rows that came in the exchange and `by_expert`.
void Block::regroup(backend::Kernels& kernels, const ModuleCall& call, std::int32_t* first, std::byte* by_expert,
                    bool back) const {
  kernels.regroup({.ranks = exchange_.ranks,
                   .experts = exchange_.experts_of_a_rank(),
                   .visits = reinterpret_cast<const std::int32_t*>(call.exchange + exchange_.arrived_visits_at()),
                   .first = first,
                   .width = model_.width,
                   .dtype = batch_.dtype,
                   .by_rank = call.exchange + exchange_.arrived_at(),
                   .by_expert = by_expert,
                   .back = back});
}

/// Whom tokens visit, from `normed` in the workspace.
void Block::route(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                  const ForwardWorkspace& work) const {
  router_.forward(kernels, work.normed, call.parameters[at_.router], saved.logits);
  kernels.route({.routing = saved.routing, .dtype = batch_.dtype, .logits = saved.logits});
  if (call.visits == nullptr) return;
  kernels.download(reinterpret_cast<const std::byte*>(saved.routing.first), call.visits,
                   (model_.experts + 1) * static_cast<std::int64_t>(sizeof(std::int32_t)));
}

/// Applies experts to rows x, sorted by expert as `first` says.
void Block::apply_experts(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                          const ForwardWorkspace& work, const std::byte* x, std::byte* y,
                          const std::int32_t* first) const {
  const auto& p = call.parameters;
  gate_up_.forward(kernels, x, p.subspan(at_.gate_up), saved.gate_up, first);
  kernels.swiglu({.shape = {contract_.rows, model_.ffn_width, batch_.dtype},
                  .stride = gate_up_.stride(0),
                  .gate = saved.gate_up[0],
                  .up = saved.gate_up[1],
                  .y = work.product,
                  .used = first + contract_.experts});
  contract_.forward(kernels, work.product, p[at_.down], y, nullptr, first);
}

void Block::combine(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                    const std::byte* routed) const {
  kernels.combine({.routing = saved.routing,
                   .width = model_.width,
                   .dtype = batch_.dtype,
                   .x = routed,
                   .residual = shares() ? call.output : saved.h,
                   .y = call.output});
}

/// The feed-forward half of the backward. The rows that the experts got are made once more, from the norm's output,
/// where the gradients of what they gave lay.
void Block::experts_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                             const BackwardWorkspace& work) const {
  const auto& p = call.parameters;
  const backend::Routing& routing = saved.routing;
  shared_contract_backward(kernels, call, saved, work);
  shared_expand_backward(kernels, call, saved, work);
  kernels.combine_backward({.routing = routing,
                            .width = model_.width,
                            .dtype = batch_.dtype,
                            .d_y = call.d_stream,
                            .x = saved.routed,
                            .d_x = work.routed,
                            .d_weight = work.d_weight});
  contract_.input_gradient(kernels, work.routed, p[at_.down], work.d_product, false, routing.first);
  swiglu_backward(kernels, saved, work, routing.first + contract_.experts);
  contract_.weight_gradient(kernels, work.routed, work.d_product, call.gradients[at_.down], routing.first);
  gate_up_.input_gradient(kernels, work.d_gate_up, p.subspan(at_.gate_up), work.d_routed, routing.first);
  router_backward(kernels, call, saved, work, work.d_routed);
  kernels.dispatch(
      {.routing = routing, .width = model_.width, .dtype = batch_.dtype, .x = work.normed, .y = work.routed});
  gate_up_.weight_gradient(kernels, work.d_gate_up, work.routed, call.gradients.subspan(at_.gate_up), routing.first);
}

/// From the gradients of the rows that experts got to d_h, through the router and the norm before it, whose output is
/// then in the workspace.
void Block::router_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                            const BackwardWorkspace& work, const std::byte* d_routed) const {
  kernels.route_backward({.routing = saved.routing,
                          .dtype = batch_.dtype,
                          .logits = saved.logits,
                          .d_weight = work.d_weight,
                          .balance = balance_ * call.loss_scale,
                          .d_logits = work.d_logits});
  kernels.combine({.routing = saved.routing,
                   .width = model_.width,
                   .dtype = batch_.dtype,
                   .weighted = false,
                   .x = d_routed,
                   .residual = shares() ? work.d_normed : nullptr,
                   .y = work.d_normed});
  router_.input_gradient(kernels, work.d_logits, call.parameters[at_.router], work.d_normed, true);
  norm_backward(kernels, call, at_.norm2, work.d_normed, saved.h, saved.rstd2, work.normed);
  router_.weight_gradient(kernels, work.d_logits, work.normed, call.gradients[at_.router]);
}

/// See [Note: parts by experts] in model.h.
void Block::backward_by_experts(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                                const BackwardWorkspace& work) const {
  const auto& p = call.parameters;
  switch (step_of(call.part, true)) {
    case ExpertStep::send:
      if (overlap() != config::ExpertOverlap::both) {
        shared_contract_backward(kernels, call, saved, work);
        shared_expand_backward(kernels, call, saved, work);
      }
      return kernels.combine_backward({.routing = saved.routing,
                                       .width = model_.width,
                                       .dtype = batch_.dtype,
                                       .d_y = call.d_stream,
                                       .x = saved.routed,
                                       .d_x = call.exchange,
                                       .d_weight = work.d_weight,
                                       .visits = visits_in(call)});
    case ExpertStep::beside_dispatch: return shared_contract_backward(kernels, call, saved, work);
    case ExpertStep::experts:
      regroup(kernels, call, work.first, work.routed, false);
      contract_.input_gradient(kernels, work.routed, p[at_.down], work.d_product, false, work.first);
      swiglu_backward(kernels, saved, work, work.first + contract_.experts);
      contract_.weight_gradient(kernels, work.routed, work.d_product, call.gradients[at_.down], work.first);
      gate_up_.input_gradient(kernels, work.d_gate_up, p.subspan(at_.gate_up), work.d_routed, work.first);
      gate_up_.weight_gradient(kernels, work.d_gate_up, saved.arrived, call.gradients.subspan(at_.gate_up), work.first);
      return regroup(kernels, call, work.first, work.d_routed, true);
    case ExpertStep::beside_combine: return shared_expand_backward(kernels, call, saved, work);
    case ExpertStep::receive:
      router_backward(kernels, call, saved, work, call.exchange);
      attention_half_backward(kernels, call, saved, work);
  }
}

/// From the gradient of the block's output to those of the shared expert's gate and up.
void Block::shared_contract_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                                     const BackwardWorkspace& work) const {
  if (!shares()) return;
  shared_contract_.input_gradient(kernels, call.d_stream, call.parameters[at_.shared_down], work.d_shared_product);
  kernels.swiglu_backward({.shape = {batch_.rows(), model_.shared_width(), batch_.dtype},
                           .stride = shared_gate_up_.stride(0),
                           .d_y = work.d_shared_product,
                           .gate = saved.shared[0],
                           .up = saved.shared[1],
                           .d_gate = work.d_shared[0],
                           .d_up = work.d_shared[1],
                           .y = work.d_shared_product});
  shared_contract_.weight_gradient(kernels, call.d_stream, work.d_shared_product, call.gradients[at_.shared_down]);
}

/// From those to the gradient of the norm before, to which router and routed experts add theirs. The norm's output,
/// which the weights' gradients need, is made once more here: their memory is soon the routed experts'.
void Block::shared_expand_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                                   const BackwardWorkspace& work) const {
  if (!shares()) return;
  norm(kernels, saved.h, call.parameters[at_.norm2], work.normed, saved.rstd2);
  shared_gate_up_.weight_gradient(kernels, work.d_shared, work.normed, call.gradients.subspan(at_.shared_gate_up));
  shared_gate_up_.input_gradient(kernels, work.d_shared, call.parameters.subspan(at_.shared_gate_up), work.d_normed);
}

}  // namespace fsdpbench::model
