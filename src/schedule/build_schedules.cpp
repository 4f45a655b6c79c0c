#include "schedule/build_schedules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <type_traits>
#include <utility>

#include "schedule/all_gather_limiter.h"
#include "schedule/gatherer.h"
#include "schedule/prefetcher.h"
#include "schedule/reducer.h"
#include "schedule/step_builder.h"
#include "schedule/tensor_exchanges.h"
#include "schedule/updates.h"

namespace fsdpbench::schedule {
namespace {

/// Walks one training step in host order (forward, backward, optimizer) and decides when units are unsharded,
/// resharded and reduced. What each of these does is Gatherer's and Reducer's business, and what is prefetched is
/// Prefetcher's.
class StepWalk {
 public:
  explicit StepWalk(StepBuilder& builder);

  /// Writes the next step.
  void walk();

  /// State that one step leaves to the next. A step that ends as it began is repeated for ever.
  struct Carried {
    bool order_known = false;  ///< fsdp.learn_execution_order: the first step is over
    bool gathered = false;     ///< fsdp.persistence_threshold: what stays gathered was gathered
    std::deque<AllGatherLimiter::Free> free_queue;
    std::array<std::vector<Wait>, kLaneCount> waits;
    bool operator==(const Carried&) const = default;
  };
  Carried carried() const {
    return {prefetcher_.order_known(), stays_gathered_, limiter_.queue(), builder_.pending_waits()};
  }

 private:
  using Prefetch = config::Prefetch;

  void forward();
  void forward_module(int module);
  void backward(bool last_micro);
  void backward_module(int module);
  void recompute(int module);
  template <class Work>
  void append_pass(OpKind kind, int module, const std::vector<plan::ModulePart>& parts, Work work, Lifetimes lifetimes);
  BufferId new_exchange(const std::vector<plan::ModulePart>& parts, int module, std::int64_t there = 0);
  void enter_experts(OpKind kind, int experts, EventId computed);
  void leave_experts(OpKind kind, int experts);
  void end_backward();
  void hand_over(int unit);
  void post_backward(int unit, bool last_micro);
  void complete(int module, bool last_micro);
  void complete_rest(bool last_micro);
  void optimizer();
  void reduce_those_due(int lag, bool last_micro);
  /// DeepSpeed's hook that frees a module hangs on the gradient of its input: the root's, tokens, has none, so that its
  /// parameters are freed with what is left when backward is over and all buckets are reduced.
  bool frees_root_last() const { return builder_.policy.fsdp.reduce_bucket > 0 && unit(kRoot).has_parameters(); }

  int unit_of(int module) const { return builder_.plan.unit_of_module[module]; }
  const plan::Unit& unit(int u) const { return builder_.plan.units[u]; }
  const plan::ModuleSizes& sizes(int module) const { return builder_.sizes[module]; }
  /// FSDP1's hooks, which hang on what autograd computes; else FSDP2's.
  bool hooks_on_views() const { return builder_.policy.fsdp.gradients_after_views; }
  int module_count() const { return static_cast<int>(builder_.plan.shapes.modules.size()); }
  bool checkpointed(int module) const;
  /// Bytes that a checkpointed module saves and does not recompute.
  std::int64_t not_recomputed_bytes(int module) const;
  /// All that it keeps from forward to backward beside its input.
  std::int64_t kept_bytes(int module) const;
  BufferId output_before(int module) const { return module > 0 ? boundary_[module - 1] : kNoBuffer; }
  BufferId new_activation(BufferRole role, DType dtype, std::int64_t bytes, int module);
  /// Buffer of the experts of a unit's blocks that all parts of a pass may read.
  BufferId experts_parameters(int u) const {
    const bool throughout = unit(u).has_experts() && !builder_.plan.nests_experts;
    return throughout ? gatherer_.parameters(unit(u).experts).sharded : kNoBuffer;
  }
  /// Those that have hooks of their own; kNone if there are none.
  int nested_experts(int u) const { return builder_.plan.nests_experts ? unit(u).experts : kNone; }
  /// Those whose gradients only their own part of a block's backward knows; kNone if there are none.
  int apart_experts(int u) const {
    const plan::Plan& plan = builder_.plan;
    return plan.nests_experts || plan.reduces_experts_early ? unit(u).experts : kNone;
  }
  bool reduces_early(int u) const { return builder_.plan.reduces_experts_early && u != kNone && unit(u).is_experts(); }
  bool last_micro() const { return builder_.micro + 1 == builder_.policy.accumulate; }

  StepBuilder& builder_;
  AllGatherLimiter limiter_;
  Gatherer gatherer_;
  Prefetcher prefetcher_;
  Reducer reducer_;
  Updates updates_;
  TensorExchanges exchanges_;

  bool stays_gathered_ = false;  // survives the step
  int first_trained_;            // module; those before it have no backward
  bool freezes_;                 // some parameters have no gradients
  std::vector<int> pending_;     // frozen units whose backward is over and whose hook comes later
  std::deque<int> unreduced_;    // units whose reductions are put off (fsdp.reduce_lag), oldest first

  // Buffers of the current microbatch.
  BufferId inputs_ = kNoBuffer;
  BufferId targets_ = kNoBuffer;
  BufferId d_stream_ = kNoBuffer;
  std::vector<BufferId> saved_;     // by module
  std::vector<BufferId> kept_;      // by module: the part of what it saves that outlives its forward in any case
  std::vector<BufferId> boundary_;  // output of a module, by module
  EventId last_forward_ = kNoEvent;
};

StepWalk::StepWalk(StepBuilder& builder)
    : builder_(builder),
      limiter_(builder),
      gatherer_(builder, limiter_),
      prefetcher_(builder, gatherer_),
      reducer_(builder),
      updates_(builder),
      exchanges_(builder),
      first_trained_(builder.plan.shapes.first_trained()),
      freezes_(std::ranges::any_of(builder.plan.shapes.parameters, &plan::ParameterShape::frozen)) {}

void StepWalk::walk() {
  builder_.begin_step();
  limiter_.begin_step();
  gatherer_.begin_step();
  reducer_.begin_step();
  // Gathers read what the last step's optimizer wrote.
  builder_.wait(Lane::copy, builder_.step_done(), WaitReason::data);
  builder_.wait(Lane::all_gather, builder_.step_done(), WaitReason::data);
  if (builder_.offloads()) builder_.wait(Lane::host_to_device, builder_.step_done(), WaitReason::data);

  if (!stays_gathered_) gatherer_.gather_those_that_stay();
  stays_gathered_ = true;
  for (int micro = 0; micro < builder_.policy.accumulate; ++micro) {
    builder_.micro = micro;
    builder_.phase = Phase::forward;
    forward();
    builder_.phase = Phase::backward;
    backward(micro + 1 == builder_.policy.accumulate);
  }
  builder_.phase = Phase::optimizer;
  builder_.micro = 0;
  optimizer();
}

BufferId StepWalk::new_activation(BufferRole role, DType dtype, std::int64_t bytes, int module) {
  return builder_.new_buffer(role, dtype, bytes, module == kNone ? kNone : unit_of(module), module);
}

bool StepWalk::checkpointed(int module) const {
  const plan::ModuleShape& shape = builder_.plan.shapes.modules[module];
  const config::Fsdp& fsdp = builder_.policy.fsdp;
  return fsdp.activation_checkpointing && shape.kind == plan::ModuleKind::block &&
         shape.index % fsdp.checkpoint_every == 0;
}

std::int64_t StepWalk::not_recomputed_bytes(int module) const {
  if (!checkpointed(module)) return 0;
  if (builder_.policy.fsdp.checkpoint_keeps != config::CheckpointKeeps::nothing) return sizes(module).kept_saved_bytes;
  const double share = 1.0 - builder_.policy.fsdp.recompute_share;
  return std::llround(share * static_cast<double>(sizes(module).saved_bytes));
}

std::int64_t StepWalk::kept_bytes(int module) const {
  if (!checkpointed(module) || builder_.policy.fsdp.checkpoint_keeps == config::CheckpointKeeps::nothing) {
    return not_recomputed_bytes(module);
  }
  return sizes(module).kept_output_bytes;
}

/// Room for what a pass's parts exchange; kNoBuffer if nothing is, or it fits into `there` bytes that are
/// at hand.
BufferId StepWalk::new_exchange(const std::vector<plan::ModulePart>& parts, int module, std::int64_t there) {
  std::int64_t most = 0;
  for (const plan::ModulePart& part : parts) {
    // Rows go from one place to another, which is not where the output will be, and keys and values are no output.
    if (part.of_experts() || part.of_context) there = 0;
    const plan::Mesh& mesh = builder_.plan.mesh;
    most = std::max(most, part.bytes(part.of_experts() ? mesh.expert : part.of_context ? mesh.context : mesh.tensor));
  }
  if (most <= there) return kNoBuffer;
  return new_activation(BufferRole::exchange, parts.empty() ? DType::f32 : parts.front().dtype, most, module);
}

/// A module's pass: one op, or one a part and the exchanges after them. Memory is the pass's, not a part's.
template <class Work>
void StepWalk::append_pass(OpKind kind, int module, const std::vector<plan::ModulePart>& parts, Work work,
                           Lifetimes lifetimes) {
  const At at{.unit = unit_of(module), .module = module};
  if (parts.empty()) {
    exchanges_.settle();
    builder_.append(kind, at, work, std::move(lifetimes));
    return;
  }
  using Exchange = plan::ModulePart::Exchange;
  const BufferId exchange = work.exchange;
  const int nested = nested_experts(at.unit), apart = apart_experts(at.unit);
  const bool ordered = builder_.plan.orders_experts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    work.part = static_cast<int>(i);
    const bool last = i + 1 == parts.size();
    const bool here = parts[i].exchange == Exchange::combine;  // the part before it is the experts' own
    if (nested != kNone && ordered && here) enter_experts(kind, nested, exchanges_.pending());
    if (nested != kNone) work.experts = here ? gatherer_.parameters(nested).sharded : kNoBuffer;
    if (apart != kNone) {
      if constexpr (std::is_same_v<Work, Backward>) {
        const Reducer::Gradients gradients = here ? reducer_.gradients(apart) : Reducer::Gradients();
        work.gradients_experts = gradients.sharded;
        work.begins_experts = gradients.fresh;
        if (gradients.fresh) lifetimes.allocates.push_back(gradients.sharded);
      }
    }
    exchanges_.settle();
    builder_.append(kind, at, work,
                    {.allocates = std::exchange(lifetimes.allocates, {}),
                     .frees = last ? lifetimes.frees : std::vector<BufferId>()});
    if constexpr (std::is_same_v<Work, Backward>) work.begins_gradients = work.begins_experts = false;
    if (parts[i].exchange == Exchange::none) {
      if (parts[i].told > 0) exchanges_.await_numbers(kind, at.unit, module, work.part);
      continue;
    }
    const EventId computed = exchanges_.computed(kind, module, work.part);
    if (nested != kNone && !ordered && parts[i].exchange == Exchange::dispatch) enter_experts(kind, nested, computed);
    if (nested != kNone && ordered && here) leave_experts(kind, nested);
    if (kind == OpKind::backward && reduces_early(apart) && here) hand_over(apart);
    BufferId exchanged = exchange;
    if constexpr (std::is_same_v<Work, Forward>) exchanged = exchanged == kNoBuffer ? work.output : exchanged;
    exchanges_.append(kind, at.unit, module, work.part, parts[i], exchanged);
    if (nested != kNone && !ordered && here) leave_experts(kind, nested);
  }
}

/// fsdp.expert_unit = module: the module of experts sends rows away and gets them back, so that its hooks are around
/// both exchanges. ordered_module: rows come to it and leave it, so that its hooks are between the exchanges.
void StepWalk::enter_experts(OpKind kind, int experts, EventId computed) {
  const bool on_demand_only = builder_.policy.fsdp.forward_prefetch.mode == Prefetch::Mode::none;
  if (on_demand_only && kind == OpKind::forward) gatherer_.start_after(computed);
  prefetcher_.enter_experts(experts, kind == OpKind::recompute);
  gatherer_.start_after(kNoEvent);
}

void StepWalk::leave_experts(OpKind kind, int experts) {
  if (kind == OpKind::backward) return post_backward(experts, last_micro());
  if (kind == OpKind::recompute && !builder_.policy.fsdp.recompute_frees) return;
  if (prefetcher_.frees_after_forward(experts)) gatherer_.reshard(experts, true);
  prefetcher_.note_use(experts);
}

// ---------------------------------------------------------------------------------------------------- forward

void StepWalk::forward() {
  const bool on_demand_only = builder_.policy.fsdp.forward_prefetch.mode == Prefetch::Mode::none;
  saved_.assign(module_count(), kNoBuffer);
  kept_.assign(module_count(), kNoBuffer);
  boundary_.assign(module_count(), kNoBuffer);

  const plan::ModuleSizes& batch = builder_.sizes.front();
  inputs_ = new_activation(BufferRole::batch_inputs, DType::i32, batch.batch_input_bytes, kNone);
  targets_ = new_activation(BufferRole::batch_targets, DType::i32, batch.batch_target_bytes, kNone);
  builder_.append(OpKind::load_batch, {}, LoadBatch{.inputs = inputs_, .targets = targets_},
                  {.allocates = {inputs_, targets_}});
  if (builder_.micro == 0 && builder_.plan.param_dtype != builder_.plan.state_dtype) {
    for (int u = 0; u < static_cast<int>(builder_.plan.units.size()); ++u) {
      if (!unit(u).has_replicated()) continue;
      builder_.append(OpKind::cast_replicated, {.unit = u},
                      Cast{.from = builder_.persistent(BufferRole::master_replicated, u),
                           .to = builder_.persistent(BufferRole::replicated_parameters, u),
                           .count = unit(u).layout.replicated_numel});
    }
  }

  prefetcher_.begin_forward();
  prefetcher_.enter(kRoot);
  for (int module = 0; module < module_count(); ++module) {
    const int u = unit_of(module);
    const std::vector<int>& members = unit(u).members.modules;
    if (u != kRoot && module == members.front()) {
      if (on_demand_only) gatherer_.start_after(last_forward_);
      prefetcher_.enter(u, module);
      gatherer_.start_after(kNoEvent);
    }
    forward_module(module);
    if (u != kRoot && module == members.back()) {
      for (const int freed : {u, unit(u).experts}) {
        if (freed == kNone) continue;  // nested experts may have been freed
        if (prefetcher_.frees_after_forward(u)) {
          gatherer_.reshard(freed, true);
        } else {
          limiter_.released(freed, last_forward_, false);
        }
      }
      prefetcher_.note_use(u);
    }
  }
  gatherer_.release_held();
  if (prefetcher_.frees_after_forward(kRoot)) gatherer_.reshard(kRoot, true);
  prefetcher_.note_use(kRoot);
}

void StepWalk::forward_module(int module) {
  const int u = unit_of(module);
  const plan::ModuleSizes& size = sizes(module);
  const DType dtype = builder_.plan.param_dtype;
  // If no gradient goes further, nothing is saved, and the input is not wanted again.
  const bool ends_here = module < first_trained_;
  const bool recomputes = checkpointed(module) || ends_here;
  const bool last = module + 1 == module_count();

  const std::int64_t kept_bytes = ends_here ? 0 : this->kept_bytes(module);
  const std::int64_t not_recomputed = ends_here ? 0 : not_recomputed_bytes(module);
  const BufferId kept = new_activation(BufferRole::saved, dtype, kept_bytes, module);
  const BufferId saved = new_activation(BufferRole::saved, dtype, size.saved_bytes - not_recomputed, module);
  const BufferId output = new_activation(BufferRole::boundary, dtype, size.output_bytes, module);
  const BufferId workspace = new_activation(BufferRole::workspace, dtype, size.forward_workspace_bytes, module);
  const BufferId exchange = new_exchange(size.forward_parts, module, size.output_bytes);
  const Gatherer::Parameters parameters = gatherer_.parameters(u);

  append_pass(
      OpKind::forward, module, size.forward_parts,
      Forward{.parameters = parameters.sharded,
              .replicated = parameters.replicated,
              .experts = experts_parameters(u),
              .input = output_before(module),
              .batch_inputs = module == 0 ? inputs_ : kNoBuffer,
              .batch_targets = last ? targets_ : kNoBuffer,
              .saved = saved,
              .output = output,
              .workspace = workspace,
              .loss = last ? builder_.persistent(BufferRole::loss) : kNoBuffer,
              .exchange = exchange},
      {.allocates = {kept, saved, output, workspace, exchange},
       .frees = {workspace, exchange, recomputes ? saved : kNoBuffer, ends_here ? output_before(module) : kNoBuffer}});
  kept_[module] = kept;
  saved_[module] = recomputes ? kNoBuffer : saved;
  boundary_[module] = output;
  last_forward_ =
      exchanges_.pending() == kNoEvent ? builder_.record(EventRole::forward_done, module) : exchanges_.pending();

  const plan::ModuleShape& shape = builder_.plan.shapes.modules[module];
  const bool layer = shape.kind == plan::ModuleKind::block || shape.kind == plan::ModuleKind::linear;
  if (layer && shape.index == builder_.policy.host_sync_after_layer) {
    builder_.append(OpKind::host_sync, {.unit = u, .module = module});
  }
}

// --------------------------------------------------------------------------------------------------- backward

void StepWalk::backward(bool last_micro) {
  const std::int64_t widest = std::ranges::max(builder_.sizes, {}, &plan::ModuleSizes::output_bytes).output_bytes;
  d_stream_ = new_activation(BufferRole::d_stream, builder_.plan.param_dtype, widest, kNone);

  prefetcher_.begin_backward();
  prefetcher_.enter(kRoot);
  for (int module = module_count() - 1; module >= first_trained_; --module) {
    const int u = unit_of(module);
    const std::vector<int>& members = unit(u).members.modules;
    const bool again = builder_.policy.fsdp.checkpoint_reentrant && checkpointed(module);
    if (u != kRoot && module == members.back()) {
      again ? prefetcher_.enter_again(u) : prefetcher_.enter(u, module);
      for (const int before : std::exchange(pending_, {})) post_backward(before, last_micro);
      reduce_those_due(builder_.policy.fsdp.reduce_lag, last_micro);
    }
    if (checkpointed(module)) recompute(module);
    if (again) prefetcher_.leave_again(u);
    backward_module(module);
    complete(module, last_micro);
  }
  if (freezes_) complete_rest(last_micro);
  prefetcher_.end_backward();
  // DeepSpeed's stage 1 goes through its parameters, whatever the order of their gradients.
  if (builder_.policy.fsdp.reduce_bucket > 0) std::ranges::sort(unreduced_);
  reduce_those_due(0, last_micro);
  reducer_.end_backward();
  if (reshards_after_backward(builder_.policy, last_micro)) gatherer_.reshard(kRoot, false);  // frees_root_last()
  if (!last_micro) end_backward();
}

/// The hooks of units whose backward is over with that of `module`. With frozen parameters:
///
/// FSDP2's hook hangs on a unit's inputs; where these need no gradient it comes when all of backward is over. FSDP1's
/// hangs on a unit's gradient; a frozen unit has another one, on its inputs, which comes behind the hook that gathers
/// the unit before it, and none where these need no gradient.
void StepWalk::complete(int module, bool last_micro) {
  for (const int u : prefetcher_.complete_after(module)) {
    const bool reached = !unit(u).members.modules.empty() && unit(u).members.modules.front() > first_trained_;
    if (!freezes_ || (hooks_on_views() ? unit(u).has_gradients() : reached)) post_backward(u, last_micro);
  }
  if (!freezes_ || !hooks_on_views()) return;
  const int u = unit_of(module);
  if (u != kRoot && module == unit(u).members.modules.front() && !unit(u).has_gradients()) pending_.push_back(u);
}

void StepWalk::complete_rest(bool last_micro) {
  if (hooks_on_views()) {
    for (int module = first_trained_ - 1; module >= 0; --module) {
      for (const int u : prefetcher_.complete_after(module)) {
        if (unit(u).has_gradients()) post_backward(u, last_micro);
      }
    }
    if (!reshards_after_backward(builder_.policy, last_micro)) return;
    for (int u = 0; u < static_cast<int>(builder_.plan.units.size()); ++u) gatherer_.reshard(u, false);
    return;
  }
  for (int u = 0; u < static_cast<int>(builder_.plan.units.size()); ++u) {
    const std::vector<int>& members = unit(u).members.modules;
    if (members.empty() || members.front() <= first_trained_) post_backward(u, last_micro);
  }
}

/// All but the last `lag` - 1 of the units whose backward is over; 0: all.
void StepWalk::reduce_those_due(int lag, bool last_micro) {
  while (!unreduced_.empty() && static_cast<int>(unreduced_.size()) >= lag) {
    reducer_.reduce(unreduced_.front(), last_micro);
    unreduced_.pop_front();
  }
}

// The next microbatch's gathers start after this, too: in PyTorch each forward of the root lets their streams wait.
void StepWalk::end_backward() {
  if (builder_.policy.fsdp.wait_each_backward) reducer_.wait_for_all();
  const config::Fsdp& fsdp = builder_.policy.fsdp;
  const bool brings_unused = freezes_ || fsdp.checkpoint_reentrant || fsdp.recompute_frees;
  if (builder_.policy.fsdp.wait_each_backward && brings_unused) gatherer_.discard_unused();
  builder_.append(OpKind::end_backward, {});
  const EventId ended = builder_.record(EventRole::backward_ended);
  builder_.wait(Lane::copy, ended, WaitReason::limit);
  builder_.wait(Lane::all_gather, ended, WaitReason::limit);
}

void StepWalk::recompute(int module) {
  const int u = unit_of(module);
  const plan::ModuleSizes& size = sizes(module);
  const DType dtype = builder_.plan.param_dtype;
  const BufferId saved =
      new_activation(BufferRole::saved, dtype, size.saved_bytes - not_recomputed_bytes(module), module);
  const BufferId workspace = new_activation(BufferRole::workspace, dtype, size.forward_workspace_bytes, module);
  const BufferId exchange = new_exchange(size.recompute_parts, module);
  const Gatherer::Parameters parameters = gatherer_.parameters(u);
  append_pass(OpKind::recompute, module, size.recompute_parts,
              Forward{.parameters = parameters.sharded,
                      .replicated = parameters.replicated,
                      .experts = experts_parameters(u),
                      .input = output_before(module),
                      .saved = saved,
                      .workspace = workspace,
                      .exchange = exchange},
              {.allocates = {saved, workspace, exchange}, .frees = {workspace, exchange}});
  saved_[module] = saved;
}

void StepWalk::backward_module(int module) {
  const int u = unit_of(module);
  const plan::ModuleSizes& size = sizes(module);
  const bool first = module == 0;
  const bool last = module + 1 == module_count();
  const Reducer::Gradients gradients = reducer_.gradients(u);
  const int experts = unit(u).experts == apart_experts(u) ? kNone : unit(u).experts;
  const Reducer::Gradients of_experts = experts == kNone ? Reducer::Gradients() : reducer_.gradients(experts);
  const BufferId workspace =
      new_activation(BufferRole::workspace, builder_.plan.param_dtype, size.backward_workspace_bytes, module);
  const BufferId exchange = new_exchange(size.backward_parts, module);
  const Gatherer::Parameters parameters = gatherer_.parameters(u);
  const Backward work{.parameters = parameters.sharded,
                      .replicated = parameters.replicated,
                      .experts = experts_parameters(u),
                      .saved = saved_[module],
                      .input = output_before(module),
                      .batch_inputs = first ? inputs_ : kNoBuffer,
                      .d_stream = d_stream_,
                      .gradients = gradients.sharded,
                      .gradients_replicated = gradients.replicated,
                      .gradients_experts = of_experts.sharded,
                      .workspace = workspace,
                      .begins_stream = last,
                      .begins_gradients = gradients.fresh,
                      .begins_experts = of_experts.fresh,
                      .exchange = exchange};
  Lifetimes lifetimes{.allocates = {workspace, exchange, last ? d_stream_ : kNoBuffer},
                      .frees = {workspace, exchange, work.saved, kept_[module], work.input}};
  if (gradients.fresh)
    lifetimes.allocates.insert(lifetimes.allocates.begin(), {gradients.sharded, gradients.replicated});
  if (of_experts.fresh) lifetimes.allocates.push_back(of_experts.sharded);
  if (module == first_trained_) lifetimes.frees.insert(lifetimes.frees.end(), {d_stream_, inputs_, targets_});
  append_pass(OpKind::backward, module, size.backward_parts, work, std::move(lifetimes));
}

/// The unit's gradients are complete.
void StepWalk::hand_over(int u) {
  if (builder_.policy.fsdp.reduce_lag > 0) {
    unreduced_.push_back(u);
  } else {
    reducer_.reduce(u, last_micro());
  }
}

void StepWalk::post_backward(int u, bool last_micro) {
  if (!unit(u).has_parameters()) return;
  // A bucket takes gradients over as they become complete, which is before the unit's hook frees its parameters.
  const bool before = builder_.policy.fsdp.reduce_bucket > 0 && builder_.policy.fsdp.reduce_lag == 0;
  if (before && !reduces_early(u)) hand_over(u);
  const bool later = u == kRoot && frees_root_last();
  // A prefetch below the first unit that trains has not been waited for: it is dropped with the rest.
  const bool unused = !gatherer_.is_whole(u);
  if (!later && reshards_after_backward(builder_.policy, last_micro)) {
    unused ? gatherer_.reshard_group_shard(u) : gatherer_.reshard(u, false);
  }
  prefetcher_.leave_backward(u);
  if (!before && !reduces_early(u)) hand_over(u);
}

// -------------------------------------------------------------------------------------------------- optimizer

void StepWalk::optimizer() {
  reducer_.finish();
  gatherer_.discard_unused();
  gatherer_.release_group_shards();
  updates_.append(reducer_.ready());
  gatherer_.gather_those_that_stay();
  updates_.finish();
  builder_.record(EventRole::step_done);
}

}  // namespace

Schedules build_schedules(const plan::Plan& plan, const Policy& policy, const std::vector<plan::ModuleSizes>& sizes) {
  StepBuilder builder(plan, policy, sizes);
  StepWalk walk(builder);
  Schedules result;
  // This ends: the queue of fsdp1_queue is the only thing that can go on changing, and with one list of calls and frees
  // a step its length only rises, to its limit, or only falls.
  for (bool steady = false; !steady;) {
    const StepWalk::Carried found = walk.carried();
    walk.walk();
    result.steps.push_back(builder.step());
    steady = walk.carried() == found;
  }
  // Steps may look alike while the queue fills, but the last one only stands for itself and those after it.
  while (result.steps.size() > 1 && result.steps.back() == result.steps[result.steps.size() - 2]) {
    result.steps.pop_back();
  }
  result.event_count = builder.event_count();
  return result;
}

}  // namespace fsdpbench::schedule
