#include "engine/op_runner.h"

#include <cstring>
#include <stdexcept>

namespace fsdpbench::engine {

using schedule::BufferId;
using schedule::BufferRole;
using schedule::Op;
using schedule::OpKind;

namespace {

/// The operand of one of `roles`; null if the op has none.
std::byte* find(const BufferTable& buffers, const std::vector<BufferId>& operands,
                std::initializer_list<BufferRole> roles) {
  for (BufferId id : operands) {
    for (BufferRole role : roles) {
      if (buffers.info(id).role == role) return buffers.at(id);
    }
  }
  return nullptr;
}

}  // namespace

OpRunner::OpRunner(const config::RunConfig& config, const plan::Plan& plan, const model::Model& model,
                   const BatchSource& batches, int rank)
    : config_(config), plan_(plan), model_(model), batches_(batches), rank_(rank) {
  places_.resize(plan.shapes.parameters.size());
  runs_.resize(plan.units.size());
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const plan::Unit& unit = plan.units[u];
    for (bool replicated : {false, true}) {
      for (const plan::ParameterPlacement& p : replicated ? unit.layout.replicated : unit.layout.sharded) {
        places_[static_cast<std::size_t>(p.parameter)] = {static_cast<int>(u), replicated, p.unsharded_offset};
      }
    }
    UnitRuns& runs = runs_[u];
    runs.gaps_replicated = gaps_between(unit.layout.replicated, unit.layout.replicated_numel);
    if (unit.layout.views()) {
      runs.gaps = gaps_between(unit.layout.sharded, unit.layout.unsharded_numel);
    } else {
      runs.copy_out = copy_out_runs(unit.layout);
      runs.reduce_copy_in = reduce_copy_in_runs(unit.layout);
    }
    if (!unit.group_layout.empty()) {
      const plan::ShardLayout& group = unit.group_layout.front();
      runs.copy_out_group = copy_out_runs(group);
      runs.keep_group = keep_group_runs(group, plan.groups.index(plan::Group::reshard, rank));
    }
  }
}

void OpRunner::resolve_batch(const Op& op, const BufferTable& buffers, std::int64_t step, OpSlot* slot) const {
  const config::Train& train = config_.train;
  const std::int64_t batch = train.batch_per_rank;
  // Ranks and microbatches take consecutive samples, so that fewer ranks with larger batches see the same ones.
  const std::int64_t first = ((step * train.accumulate + op.micro) * plan_.mesh.ranks() + rank_) * batch;
  const auto sized = [&](BufferRole role, std::vector<std::byte>* host, std::byte** device) {
    for (BufferId id : op.writes) {
      if (buffers.info(id).role != role) continue;
      host->resize(static_cast<std::size_t>(buffers.info(id).bytes));
      *device = buffers.at(id);
    }
  };
  sized(BufferRole::batch_inputs, &slot->host_inputs, &slot->from);
  sized(BufferRole::batch_targets, &slot->host_targets, &slot->to);
  for (std::int64_t b = 0; b < batch; ++b) {
    if (config_.model.kind == config::ModelKind::decoder) {
      const auto seq = static_cast<std::size_t>(train.seq_len);
      std::vector<std::int32_t> tokens(seq + 1);
      batches_.tokens(first + b, tokens);
      std::memcpy(slot->host_inputs.data() + static_cast<std::size_t>(b) * seq * 4, tokens.data(), seq * 4);
      std::memcpy(slot->host_targets.data() + static_cast<std::size_t>(b) * seq * 4, tokens.data() + 1, seq * 4);
    } else {
      std::vector<float> inputs(static_cast<std::size_t>(config_.model.in_features));
      std::vector<float> targets(static_cast<std::size_t>(config_.model.out_features));
      batches_.features(first + b, inputs, targets);
      const auto row = static_cast<std::size_t>(b);
      std::memcpy(slot->host_inputs.data() + row * inputs.size() * 4, inputs.data(), inputs.size() * 4);
      std::memcpy(slot->host_targets.data() + row * targets.size() * 4, targets.data(), targets.size() * 4);
    }
  }
}

void OpRunner::resolve_module(const Op& op, const BufferTable& buffers, OpSlot* slot) const {
  const plan::ModuleShape& module = plan_.shapes.modules[static_cast<std::size_t>(op.module)];
  const std::int64_t element = size_of(plan_.param_dtype);
  const std::byte* sharded =
      find(buffers, op.reads, {BufferRole::gathered, BufferRole::unsharded, BufferRole::master_shard});
  const std::byte* replicated =
      find(buffers, op.reads, {BufferRole::replicated_parameters, BufferRole::master_replicated});
  std::byte* gradients = find(buffers, op.writes, {BufferRole::gradients});
  std::byte* gradients_replicated = find(buffers, op.writes, {BufferRole::gradients_replicated});
  slot->parameters.clear();
  slot->gradients.clear();
  for (int p : module.parameters) {
    const Place& place = places_[static_cast<std::size_t>(p)];
    slot->parameters.push_back((place.replicated ? replicated : sharded) + place.offset * element);
    if (op.kind == OpKind::backward) {
      slot->gradients.push_back((place.replicated ? gradients_replicated : gradients) + place.offset * element);
    }
  }
  model::ModuleCall& call = slot->call;
  call.parameters = slot->parameters;
  call.gradients = slot->gradients;
  call.batch = {find(buffers, op.reads, {BufferRole::batch_inputs}), find(buffers, op.reads, {BufferRole::batch_targets})};
  call.input = find(buffers, op.reads, {BufferRole::boundary});
  call.output = find(buffers, op.writes, {BufferRole::boundary});
  call.saved = find(buffers, op.kind == OpKind::backward ? op.reads : op.writes, {BufferRole::saved});
  call.workspace = find(buffers, op.writes, {BufferRole::workspace});
  call.d_stream = find(buffers, op.writes, {BufferRole::d_stream});
  call.loss = reinterpret_cast<float*>(find(buffers, op.writes, {BufferRole::loss}));
  if (call.loss != nullptr) call.loss += op.micro;
  call.loss_scale = 1.0F / static_cast<float>(config_.train.accumulate);

  slot->zero.clear();
  for (BufferId id : op.allocates) {  // padding would otherwise be reduced and counted in the norm as it lies there
    const BufferRole role = buffers.info(id).role;
    if (role != BufferRole::gradients && role != BufferRole::gradients_replicated) continue;
    const UnitRuns& runs = runs_[static_cast<std::size_t>(op.unit)];
    for (const auto& [first, count] : role == BufferRole::gradients ? runs.gaps : runs.gaps_replicated) {
      slot->zero.push_back({buffers.at(id) + first * element, count * element});
    }
  }
}

void OpRunner::resolve(const Op& op, const BufferTable& buffers, std::int64_t step, OpSlot* slot) const {
  slot->count = op.count;
  slot->step = step + 1;
  slot->runs = nullptr;
  slot->factor = nullptr;
  slot->extra = slot->extra2 = nullptr;
  const auto operand = [&](const std::vector<BufferId>& list, std::size_t i, std::byte** memory, DType* dtype) {
    if (i >= list.size()) return;
    *memory = buffers.at(list[i]);
    *dtype = buffers.info(list[i]).dtype;
  };
  if (op.kind == OpKind::load_batch) return resolve_batch(op, buffers, step, slot);
  if (op.kind == OpKind::forward || op.kind == OpKind::recompute || op.kind == OpKind::backward) {
    return resolve_module(op, buffers, slot);
  }
  // Everything else reads its first operand and writes its first result.
  operand(op.reads, 0, &slot->from, &slot->from_dtype);
  operand(op.writes, 0, &slot->to, &slot->to_dtype);
  const UnitRuns* runs = op.unit >= 0 ? &runs_[static_cast<std::size_t>(op.unit)] : nullptr;
  switch (op.kind) {
    case OpKind::copy_in: {  // into this rank's slice; `count` is the slice
      const bool grouped = buffers.info(op.reads.front()).role == BufferRole::group_shard;
      const int index = plan_.groups.index(grouped ? plan::Group::reshard : plan::Group::shard, rank_);
      slot->to += index * op.count * size_of(slot->to_dtype);
      break;
    }
    case OpKind::copy_out: slot->runs = op.first ? &runs->copy_out : &runs->copy_out_group; break;
    case OpKind::reduce_copy_in: slot->runs = &runs->reduce_copy_in; break;
    case OpKind::keep_group_shard: slot->runs = &runs->keep_group; break;
    case OpKind::optimizer: {
      DType dtype{};
      operand(op.writes, 1, &slot->extra, &dtype);
      operand(op.writes, 2, &slot->extra2, &dtype);
      slot->factor = reinterpret_cast<const float*>(find(buffers, op.reads, {BufferRole::clip_factor}));
      break;
    }
    default: break;
  }
}

void OpRunner::run(const Op& op, OpSlot& slot, backend::Kernels& kernels) const {
  const config::Train& train = config_.train;
  const auto* from_f32 = reinterpret_cast<const float*>(slot.from);
  auto* to_f32 = reinterpret_cast<float*>(slot.to);
  switch (op.kind) {
    case OpKind::load_batch:
      kernels.upload(slot.host_inputs.data(), slot.from, static_cast<std::int64_t>(slot.host_inputs.size()));
      kernels.upload(slot.host_targets.data(), slot.to, static_cast<std::int64_t>(slot.host_targets.size()));
      return;
    case OpKind::forward:
    case OpKind::recompute: model_.forward(op.module, kernels, slot.call); return;
    case OpKind::backward:
      for (const auto& [memory, bytes] : slot.zero) kernels.fill_zero(memory, bytes);
      model_.backward(op.module, kernels, slot.call);
      return;
    case OpKind::cast_replicated:
    case OpKind::cast_shard:
    case OpKind::copy_in:
    case OpKind::reduce_cast:
      kernels.cast(slot.from, slot.from_dtype, slot.to, slot.to_dtype, slot.count, op.scale);
      return;
    case OpKind::copy_out:
    case OpKind::reduce_copy_in:
    case OpKind::keep_group_shard:
      kernels.copy_runs(slot.from, slot.from_dtype, slot.to, slot.to_dtype, *slot.runs);
      return;
    case OpKind::accumulate_gradients:
    case OpKind::finish_gradient:
      if (op.first) {
        kernels.cast(slot.from, slot.from_dtype, slot.to, DType::f32, slot.count, op.scale);
      } else {
        kernels.accumulate(slot.from, slot.from_dtype, to_f32, slot.count, op.scale);
      }
      return;
    case OpKind::gradient_norm:
      kernels.sum_of_squares(from_f32, slot.count, op.scale, reinterpret_cast<double*>(slot.to), op.first);
      return;
    case OpKind::clip:
      kernels.clip_factor(reinterpret_cast<const double*>(slot.from), slot.count, train.clip_norm, to_f32);
      return;
    case OpKind::optimizer: {
      if (train.optimizer == config::Optimizer::sgd) {
        kernels.sgd(to_f32, from_f32, slot.count, static_cast<float>(train.learning_rate),
                    static_cast<float>(train.weight_decay), slot.factor);
        return;
      }
      backend::AdamWStep step;
      step.learning_rate = static_cast<float>(train.learning_rate);
      step.beta1 = static_cast<float>(train.beta1);
      step.beta2 = static_cast<float>(train.beta2);
      step.epsilon = static_cast<float>(train.epsilon);
      step.weight_decay = static_cast<float>(train.weight_decay);
      step.step = slot.step;
      step.gradient_scale = slot.factor;
      kernels.adamw(to_f32, from_f32, reinterpret_cast<float*>(slot.extra), reinterpret_cast<float*>(slot.extra2),
                    slot.count, step);
      return;
    }
    default: throw std::logic_error("OpRunner::run: not an op with work of its own");
  }
}

void OpRunner::enqueue_collective(const Op& op, const OpSlot& slot, Communicators& communicators,
                                  backend::Stamp* stamp) const {
  backend::Communicator& group = communicators.of(op.group);
  switch (op.kind) {
    case OpKind::all_gather:
    case OpKind::gather_norm: {
      const bool in_place = slot.from == slot.to;
      const std::byte* input = in_place ? slot.to + group.rank() * op.count * size_of(op.dtype) : slot.from;
      group.all_gather(op.lane, input, slot.to, op.count, op.dtype, stamp);
      return;
    }
    case OpKind::reduce_scatter:
      group.reduce_scatter(op.lane, slot.from, slot.to, op.count, op.dtype, op.scale, stamp);
      return;
    case OpKind::all_reduce: group.all_reduce(op.lane, slot.to, op.count, op.dtype, op.scale, stamp); return;
    default: throw std::logic_error("OpRunner::enqueue_collective: not a collective");
  }
}

}  // namespace fsdpbench::engine
