#include "engine/executor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/clock.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::engine {

OpRanges::OpRanges(const plan::Plan& plan, const schedule::Schedules& schedules) {
  if (!trace::nvtx_listens()) return;
  for (const schedule::Schedule& schedule : schedules.steps) {
    for (const schedule::Op& op : schedule.ops) {
      std::int64_t bytes = 0;
      for (schedule::BufferId id : op.operands().writes) bytes += schedule.buffers[id].bytes;
      if (op.is_collective()) bytes = op.collective()->bytes();
      names_.emplace(&op, Label{trace::NvtxName(schedule::op_name(plan, op)), bytes});
    }
  }
}

void OpRanges::begin(backend::Device& device, const schedule::Op& op, std::int64_t step) const {
  if (names_.empty()) return;
  const Label& label = names_.at(&op);
  const trace::NvtxPayload payload{op.unit, step, label.bytes};
  if (!op.has_work()) return trace::nvtx_push(label.name, trace::kNvtxHostCategory, payload);
  device.enqueue(
      op.lane, "range begin",
      [&label, payload, category = trace::nvtx_category(op.lane)](backend::Kernels&) {
        trace::nvtx_push(label.name, category, payload);
      },
      nullptr);
}

void OpRanges::end(backend::Device& device, const schedule::Op& op) const {
  if (names_.empty()) return;
  if (!op.has_work()) return trace::nvtx_pop();
  device.enqueue(
      op.lane, "range end", [](backend::Kernels&) { trace::nvtx_pop(); }, nullptr);
}

using schedule::BufferRole;
using schedule::Op;
using schedule::OpKind;

namespace {

std::size_t most_ops(const schedule::Schedules& schedules) {
  const auto ops = [](const schedule::Schedule& schedule) { return schedule.ops.size(); };
  return ops(std::ranges::max(schedules.steps, {}, ops));
}

}  // namespace

Executor::Executor(backend::RankContext& context, const config::RunConfig& config, const plan::Plan& plan,
                   const schedule::Schedules& schedules, const model::Model& model, const BatchSource& batches)
    : context_(context),
      plan_(plan),
      schedules_(schedules),
      communicators_(context, plan.groups),
      buffers_(context.device, schedules.steps.front()),
      masters_(context, plan, buffers_, communicators_),
      runner_(config, plan, model, batches, context.rank),
      ranges_(plan, schedules),
      trouble_(config.inject, config.train.seed, context.rank),
      losses_(config.train.accumulate) {
  slots_.resize(most_ops(schedules));
  trace_.rank = context.rank;
}

void Executor::initialize(const model::FillParameter& fill, int threads) {
  if (context_.device.computes()) masters_.initialize(fill, threads);
}

void Executor::start_recording(std::int64_t steps) {
  recording_ = true;
  const std::size_t ops = slots_.size() * steps;
  // Written once, so that no step waits for the operating system to hand the pages out.
  const auto make_room = [](auto& buffer, std::size_t count) {
    const std::size_t size = buffer.size();
    buffer.resize(size + count);
    buffer.resize(size);
  };
  make_room(trace_.records, ops);
  make_room(trace_.memory, ops);
  make_room(trace_.steps, steps);
}

std::int64_t Executor::recording_bytes(const schedule::Schedules& schedules, std::int64_t steps) {
  const std::size_t an_op = sizeof(trace::Record) + sizeof(trace::MemorySample);
  return steps * static_cast<std::int64_t>(most_ops(schedules) * an_op + sizeof(trace::StepWindow));
}

void Executor::sample_memory() {
  const PoolStatistics& statistics = context_.device.memory();
  trace_.memory.push_back({now_ns(), statistics.live, statistics.reserved});
}

void Executor::issue(const Op& op, OpSlot& slot, std::int64_t step, trace::Record* record) {
  backend::Device& device = context_.device;
  trouble_.before_issue();
  if (record != nullptr) record->issued_ns = now_ns();
  if (!op.has_work()) ranges_.begin(device, op, step);
  if (op.is_host()) {
    for (const schedule::Wait& wait : op.waits) device.host_wait(wait.event);
    if (op.kind == OpKind::host_sync) device.synchronize();
    if (record != nullptr) record->end_ns = now_ns();
    ranges_.end(device, op);
    return;
  }
  for (const schedule::Wait& wait : op.waits) device.wait(op.lane, wait.event);
  const schedule::EventId before = in_line_.before(op);
  if (before != schedule::kNoEvent) device.wait(op.lane, before);
  for (schedule::BufferId id : op.allocates) buffers_.allocate(id, op.lane);
  if (op.has_work()) {
    trouble_.before_op(device, op.lane);
    runner_.resolve(op, buffers_, step, &slot);
    ranges_.begin(device, op, step);
    if (record != nullptr) device.set_op(static_cast<std::int32_t>(step), record->op);
    backend::Stamp* stamp = recording_ ? &slot.stamp : nullptr;
    if (op.is_collective() && plan_.groups.size(op.group()) > 1) {
      runner_.enqueue_collective(op, slot, communicators_, stamp);
    } else {
      device.enqueue(
          op.lane, schedule::to_string(op.kind).data(),
          [this, &op, &slot](backend::Kernels& kernels) { runner_.run(op, slot, kernels); }, stamp);
    }
    ranges_.end(device, op);
  }
  for (schedule::BufferId id : op.frees) buffers_.free(id, op.lane);
  if (op.record != schedule::kNoEvent) device.record(op.record, op.lane);
  if (recording_ && !(op.allocates.empty() && op.frees.empty())) sample_memory();
  if (!op.has_work()) ranges_.end(device, op);
}

void Executor::issue_all(const schedule::Schedule& schedule, std::int64_t step) {
  buffers_.begin_step(schedule);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    slots_[i].stamp = {};
    trace::Record* record = nullptr;
    if (recording_) {
      trace_.records.push_back({static_cast<std::int32_t>(step), static_cast<std::int32_t>(i), 0, 0, 0, 0});
      record = &trace_.records.back();
    }
    issue(schedule.ops[i], slots_[i], step, record);
  }
}

float Executor::run_step(std::int64_t step) {
  const schedule::Schedule& schedule = schedules_.of_step(step);
  const std::int64_t begin = now_ns();
  issue_all(schedule, step);
  const std::int64_t issued = now_ns();
  context_.device.synchronize();
  last_step_ns_ = now_ns() - begin;

  if (recording_) {
    const std::span<trace::Record> records = std::span(trace_.records).last(schedule.ops.size());
    context_.device.settle_stamps();
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (schedule.ops[i].has_work()) device_records_.put(slots_[i].stamp, records[i]);
    }
    context_.device.set_op(-1, -1);
    device_records_.add(context_.device.take_activities(), records, trace_);
    std::int64_t end = begin;
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (schedule.ops[i].has_work()) end = std::max(end, records[i].end_ns);
    }
    trace_.steps.push_back({begin, end, issued});
  }
  if (!context_.device.computes()) return std::numeric_limits<float>::quiet_NaN();
  const std::byte* loss = buffers_.persistent(BufferRole::loss, -1).data();
  context_.device.enqueue(
      Lane::compute, "read loss",
      [this, loss](backend::Kernels& kernels) {
        kernels.download(loss, losses_.data(), static_cast<std::int64_t>(std::span(losses_).size_bytes()));
      },
      nullptr);
  context_.device.synchronize();
  double sum = 0;
  for (float micro : losses_) sum += static_cast<double>(micro);
  return static_cast<float>(sum / static_cast<double>(losses_.size()));
}

}  // namespace fsdpbench::engine
