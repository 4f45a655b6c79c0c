#include "engine/op_runner.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace fsdpbench::engine {

using plan::Group;
using schedule::BufferId;
using schedule::Op;
using schedule::OpKind;

OpRunner::OpRunner(const config::RunConfig& config, const plan::Plan& plan, const model::Model& model,
                   const BatchSource& batches, int rank)
    : config_(config), plan_(plan), model_(model), batches_(batches), rank_(rank) {
  places_.resize(plan.shapes.parameters.size());
  runs_.resize(plan.units.size());
  tensor_ = {plan.groups.index(Group::tensor, rank), plan.mesh.tensor};
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const plan::Unit& unit = plan.units[u];
    for (bool replicated : {false, true}) {
      for (const plan::ParameterPlacement& p : replicated ? unit.layout.replicated : unit.layout.sharded) {
        places_[p.parameter] = {static_cast<int>(u), replicated, p.unsharded_offset};
      }
    }
    UnitRuns& runs = runs_[u];
    const plan::ShardLayout& gradients = unit.gradient_layout;
    runs.gaps_replicated = gaps_between(gradients.replicated, gradients.replicated_numel);
    if (unit.layout.views()) {
      runs.gaps = gaps_between(gradients.sharded, gradients.unsharded_numel);
    } else {
      runs.over_shard_group.copy_out = copy_out_runs(unit.layout);
      runs.over_shard_group.reduce_copy_in = reduce_copy_in_runs(gradients);
    }
    if (!unit.group_layout.empty()) {
      const plan::ShardLayout& group = unit.group_layout.front();
      runs.over_reshard_group.copy_out = copy_out_runs(group);
      runs.over_reshard_group.keep_group = keep_group_runs(group, plan.groups.index(Group::reshard, rank));
    }
  }
}

/// One family of work each: from buffers to pointers.
class OpRunner::Resolve {
 public:
  Resolve(const OpRunner& runner, const Op& op, const BufferTable& buffers, std::int64_t step, OpSlot& slot)
      : runner_(runner), op_(op), buffers_(buffers), step_(step), slot_(slot) {}

  void operator()(const std::monostate&) const {}

  void operator()(const schedule::LoadBatch& work) const {
    slot_.from = at(work.inputs);
    slot_.to = at(work.targets);
    slot_.host_inputs.resize(buffers_.info(work.inputs).bytes);
    slot_.host_targets.resize(buffers_.info(work.targets).bytes);
    runner_.fill_batch(op_.micro, step_, slot_);
  }

  void operator()(const schedule::Forward& work) const {
    point_at_parameters(work);
    model::ModuleCall& call = slot_.call = {};
    call.parameters = slot_.parameters;
    call.batch = {at(work.batch_inputs).memory, at(work.batch_targets).memory};
    call.input = at(work.input).memory;
    call.output = at(work.output).memory;
    call.saved = at(work.saved).memory;
    call.workspace = at(work.workspace).memory;
    if (work.loss != schedule::kNoBuffer) call.loss = at(work.loss).floats() + op_.micro;
    call.loss_scale = loss_scale();
    call.part = work.part;
    call.exchange = work.exchange == schedule::kNoBuffer ? call.output : at(work.exchange).memory;
    call.tensor = runner_.tensor_;
  }

  void operator()(const schedule::Backward& work) const {
    point_at_parameters(work);
    slot_.gradients.clear();
    for_each_parameter([&](const Place& place) {
      const BufferId buffer = of_experts(place)  ? work.gradients_experts
                              : place.replicated ? work.gradients_replicated
                                                 : work.gradients;
      slot_.gradients.push_back(place_in(buffer, place));
    });
    model::ModuleCall& call = slot_.call = {};
    call.parameters = slot_.parameters;
    call.gradients = slot_.gradients;
    call.batch = {at(work.batch_inputs).memory, nullptr};
    call.input = at(work.input).memory;
    call.saved = at(work.saved).memory;
    call.workspace = at(work.workspace).memory;
    call.d_stream = at(work.d_stream).memory;
    call.loss_scale = loss_scale();
    call.part = work.part;
    call.exchange = at(work.exchange).memory;
    call.tensor = runner_.tensor_;

    slot_.zero.clear();  // padding would otherwise be reduced and counted in the norm as it lies there
    const auto runs_of = [&](int unit) -> const UnitRuns& { return runner_.runs_[unit]; };
    const UnitRuns& runs = runs_of(op_.unit);
    const auto clear = [&](BufferId buffer, const auto& gaps) {
      const backend::Elements gradients = at(buffer);
      for (const auto& [first, count] : gaps) {
        slot_.zero.push_back({gradients.after(first).memory, count * size_of(gradients.dtype)});
      }
    };
    if (work.begins_experts) {
      clear(work.gradients_experts, runs_of(runner_.plan_.units[op_.unit].experts).gaps);
    }
    if (!work.begins_gradients) return;
    clear(work.gradients, runs.gaps);
    clear(work.gradients_replicated, runs.gaps_replicated);
  }

  void operator()(const schedule::Cast& work) const { from_to(work.from, work.to); }

  void operator()(const schedule::LayoutCopy& work) const {
    from_to(work.from, work.to);
    const bool over_shards = work.over != Group::reshard;
    const UnitRuns& unit = runner_.runs_[op_.unit];
    const LayoutRuns& runs = over_shards ? unit.over_shard_group : unit.over_reshard_group;
    if (work.stride > 0 && op_.kind != OpKind::copy_in) return through_bucket(work);
    switch (op_.kind) {
      case OpKind::copy_in: {  // one run: the whole shard into this rank's slice
        const plan::Unit& u = runner_.plan_.units[op_.unit];
        const plan::ShardLayout& layout = over_shards ? u.layout : u.group_layout.front();
        const int index = runner_.plan_.groups.index(work.over, runner_.rank_);
        slot_.count = layout.shard_numel;
        const std::int64_t part = work.stride > 0 ? work.stride : layout.shard_numel;
        slot_.to = slot_.to.after(work.offset + index * part);
        return;
      }
      case OpKind::copy_out: slot_.runs = &runs.copy_out; return;
      case OpKind::reduce_copy_in: slot_.runs = &runs.reduce_copy_in; return;
      case OpKind::keep_group_shard: slot_.runs = &runs.keep_group; return;
      default: throw std::logic_error("OpRunner: not a copy by layout");
    }
  }

  void operator()(const schedule::Accumulate& work) const {
    from_to(work.from, work.sum);
    const Group over = runner_.plan_.units[op_.unit].group;
    const std::int64_t first = work.offset + runner_.plan_.groups.index(over, runner_.rank_) * work.stride;
    slot_.from = slot_.from.after(first);
  }
  void operator()(const schedule::Collective& work) const { from_to(work.input, work.output); }
  void operator()(const schedule::SumOfSquares& work) const {
    from_to(work.gradient, work.sum);
    slot_.squares.clear();
    if (work.whole_factor != 1.0F) return count_parts(work);
    slot_.squares.push_back({0, work.count, work.factor});
  }
  void operator()(const schedule::ClipFactor& work) const { from_to(work.sums, work.factor); }

  void operator()(const schedule::Transfer& work) const { from_to(work.from, work.to); }
  void operator()(const schedule::Update& work) const {
    from_to(work.gradient, work.parameters);
    slot_.first_moment = at(work.first_moment);
    slot_.second_moment = at(work.second_moment);
    slot_.factor = at(work.clip_factor);
    slot_.rounded = at(work.rounded);
    slot_.step = runner_.update_number(step_);
  }

 private:
  backend::Elements at(BufferId id) const {
    if (id == schedule::kNoBuffer) return {};
    return {buffers_.at(id), buffers_.info(id).dtype};
  }
  void from_to(BufferId from, BufferId to) const {
    slot_.from = at(from);
    slot_.to = at(to);
  }
  void through_bucket(const schedule::LayoutCopy& work) const {
    const plan::Unit& unit = runner_.plan_.units[op_.unit];
    const plan::ShardLayout& layout = work.over != Group::reshard ? unit.layout : unit.group_layout.front();
    const InBucket in{work.offset, work.stride};
    slot_.bucket_runs =
        op_.kind == OpKind::copy_out ? copy_out_runs(layout, in) : reduce_copy_in_runs(unit.gradient_layout, in);
    slot_.runs = &slot_.bucket_runs;
  }
  /// Piece by piece, since what each rank of the tensor group has whole is counted once; padding is in no piece.
  void count_parts(const schedule::SumOfSquares& work) const {
    const plan::ShardLayout& layout = runner_.plan_.units[op_.unit].gradient_layout;
    const int index = runner_.plan_.groups.index(Group::shard, runner_.rank_);
    slot_.squares.push_back({0, 0, work.factor});  // a rank may have nothing
    for (const plan::ShardPiece& piece : work.replicated ? layout.replicated_pieces() : layout.pieces(index)) {
      const bool split = runner_.plan_.shapes.parameters[piece.parameter].parts > 1;
      const float factor = work.factor * (split ? 1.0F : work.whole_factor);
      slot_.squares.push_back({piece.shard_offset, piece.count, factor});
    }
  }
  float loss_scale() const { return 1.0F / static_cast<float>(runner_.config_.train.accumulate); }
  template <class Use>
  void for_each_parameter(Use use) const {
    for (int p : runner_.plan_.shapes.modules[op_.module].parameters) {
      use(runner_.places_[p]);
    }
  }
  std::byte* place_in(BufferId buffer, const Place& place) const {
    if (buffer == schedule::kNoBuffer) return nullptr;  // this part of a pass does not use it
    const backend::Elements whole = at(buffer);
    return whole.after(place.offset).memory;
  }
  bool of_experts(const Place& place) const { return runner_.plan_.units[place.unit].is_experts(); }
  template <class Pass>
  void point_at_parameters(const Pass& work) const {
    slot_.parameters.clear();
    for_each_parameter([&](const Place& place) {
      const BufferId buffer = of_experts(place) ? work.experts : place.replicated ? work.replicated : work.parameters;
      slot_.parameters.push_back(place_in(buffer, place));
    });
  }

  const OpRunner& runner_;
  const Op& op_;
  const BufferTable& buffers_;
  std::int64_t step_;
  OpSlot& slot_;
};

void OpRunner::fill_batch(int micro, std::int64_t step, OpSlot& slot) const {
  const config::Train& train = config_.train;
  const config::Model& model = config_.model;
  const std::int64_t batch = train.batch_per_rank;
  // Ranks and microbatches take consecutive samples, so that fewer ranks with larger batches see the same ones; those
  // that split layers share theirs.
  const plan::Mesh& mesh = plan_.mesh;
  const std::int64_t first =
      start_.samples + ((step * train.accumulate + micro) * mesh.data_ranks() + rank_ / mesh.tensor) * batch;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::size_t row = b;
    if (model.kind == config::ModelKind::decoder) {
      const std::size_t seq = train.seq_len;
      std::vector<std::int32_t> tokens(seq + 1);
      batches_.tokens(first + b, tokens);
      std::memcpy(slot.host_inputs.data() + row * seq * 4, tokens.data(), seq * 4);
      std::memcpy(slot.host_targets.data() + row * seq * 4, tokens.data() + 1, seq * 4);
    } else {
      std::vector<float> inputs(model.in_features);
      std::vector<float> targets(model.out_features);
      batches_.features(first + b, inputs, targets);
      std::memcpy(slot.host_inputs.data() + row * inputs.size() * 4, inputs.data(), inputs.size() * 4);
      std::memcpy(slot.host_targets.data() + row * targets.size() * 4, targets.data(), targets.size() * 4);
    }
  }
}

void OpRunner::resolve(const Op& op, const BufferTable& buffers, std::int64_t step, OpSlot* slot) const {
  std::visit(Resolve(*this, op, buffers, step, *slot), op.work);
}

/// One family of work each: pointers to kernels.
class OpRunner::Run {
 public:
  Run(const OpRunner& runner, const Op& op, OpSlot& slot, backend::Kernels& kernels)
      : runner_(runner), op_(op), slot_(slot), kernels_(kernels) {}

  void operator()(const std::monostate&) const { throw std::logic_error("OpRunner::run: an op without work"); }
  /// An all-reduce over one rank, which has the sum.
  void operator()(const schedule::Collective&) const {
    if (op_.kind != OpKind::all_reduce) throw std::logic_error("OpRunner::run: a collective");
  }

  void operator()(const schedule::LoadBatch&) const {
    const auto upload = [&](const std::vector<std::byte>& host, const backend::Elements& device) {
      kernels_.upload(host.data(), device.memory, static_cast<std::int64_t>(host.size()));
    };
    upload(slot_.host_inputs, slot_.from);
    upload(slot_.host_targets, slot_.to);
  }
  void operator()(const schedule::Forward&) const { runner_.model_.forward(op_.module, kernels_, slot_.call); }
  void operator()(const schedule::Backward&) const {
    for (const auto& [memory, bytes] : slot_.zero) kernels_.fill_zero(memory, bytes);
    runner_.model_.backward(op_.module, kernels_, slot_.call);
  }
  void operator()(const schedule::Cast& work) const { cast(work.count, work.factor); }
  void operator()(const schedule::LayoutCopy&) const {
    if (op_.kind == OpKind::copy_in) return cast(slot_.count, 1.0F);
    kernels_.copy_runs(slot_.from, slot_.to, *slot_.runs);
  }
  void operator()(const schedule::Accumulate& work) const {
    if (work.overwrite) return cast(work.count, work.factor);
    kernels_.accumulate(slot_.from, slot_.to.floats(), work.count, work.factor);
  }
  void operator()(const schedule::SumOfSquares& work) const {
    bool overwrite = work.overwrite;
    for (const OpSlot::Squares& run : slot_.squares) {
      kernels_.sum_of_squares(slot_.from.after(run.first), run.count, run.factor, slot_.to.doubles(), overwrite);
      overwrite = false;
    }
  }
  void operator()(const schedule::ClipFactor& work) const {
    kernels_.clip_factor(slot_.from.doubles(), work.count, runner_.config_.train.clip_norm, slot_.to.floats());
  }
  void operator()(const schedule::Transfer& work) const {
    if (op_.kind == OpKind::host_to_device) return kernels_.upload(slot_.from.memory, slot_.to.memory, work.bytes);
    kernels_.download(slot_.from.memory, slot_.to.memory, work.bytes);
  }
  void operator()(const schedule::Update& work) const {
    const config::Train& train = runner_.config_.train;
    const backend::ParameterUpdate update{.count = work.count,
                                          .parameter = slot_.to.floats(),
                                          .gradient = slot_.from,
                                          .first_moment = slot_.first_moment.floats(),
                                          .second_moment = slot_.second_moment.floats(),
                                          .rounded = slot_.rounded.memory};
    if (train.optimizer == config::Optimizer::sgd) {
      return kernels_.sgd(update, {.learning_rate = static_cast<float>(train.learning_rate),
                                   .weight_decay = static_cast<float>(train.weight_decay),
                                   .gradient_scale = slot_.factor.floats()});
    }
    kernels_.adamw(update, {.learning_rate = static_cast<float>(train.learning_rate),
                            .beta1 = static_cast<float>(train.beta1),
                            .beta2 = static_cast<float>(train.beta2),
                            .epsilon = static_cast<float>(train.epsilon),
                            .weight_decay = static_cast<float>(train.weight_decay),
                            .step = slot_.step,
                            .gradient_scale = slot_.factor.floats()});
  }

 private:
  void cast(std::int64_t count, float factor) const { kernels_.cast(slot_.from, slot_.to, count, factor); }

  const OpRunner& runner_;
  const Op& op_;
  OpSlot& slot_;
  backend::Kernels& kernels_;
};

void OpRunner::run(const Op& op, OpSlot& slot, backend::Kernels& kernels) const {
  std::visit(Run(*this, op, slot, kernels), op.work);
}

void OpRunner::enqueue_collective(const Op& op, const OpSlot& slot, Communicators& communicators,
                                  backend::Stamp* stamp) const {
  const schedule::Collective* work = op.collective();
  if (work == nullptr) throw std::logic_error("OpRunner::enqueue_collective: not a collective");
  backend::Communicator& group = communicators.of(work->group);
  std::byte* const from = slot.from.memory;
  std::byte* const to = slot.to.memory;
  switch (op.kind) {
    case OpKind::all_gather:
    case OpKind::tensor_all_gather:
    case OpKind::gather_norm: {
      const std::byte* input = work->input == work->output ? to + group.rank() * work->bytes() : from;
      group.all_gather(op.lane, input, to, work->count, work->dtype, stamp);
      return;
    }
    case OpKind::reduce_scatter:
    case OpKind::tensor_reduce_scatter: {
      std::byte* output = work->input == work->output ? from + group.rank() * work->bytes() : to;
      group.reduce_scatter(op.lane, from, output, work->count, work->dtype, work->scale, stamp);
      return;
    }
    case OpKind::all_reduce:
    case OpKind::tensor_all_reduce: group.all_reduce(op.lane, to, work->count, work->dtype, work->scale, stamp); return;
    default: throw std::logic_error("OpRunner::enqueue_collective: not a collective");
  }
}

}  // namespace fsdpbench::engine
