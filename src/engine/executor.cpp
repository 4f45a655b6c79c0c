#include "engine/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/clock.h"

namespace fsdpbench::engine {

using schedule::BufferRole;
using schedule::Op;
using schedule::OpKind;

Executor::Executor(backend::RankContext& context, const config::RunConfig& config, const plan::Plan& plan,
                   const schedule::Schedules& schedules, const model::Model& model, const BatchSource& batches)
    : context_(context),
      config_(config),
      plan_(plan),
      schedules_(schedules),
      communicators_(context, plan.groups),
      buffers_(context.device, schedules.steps.front()),
      runner_(config, plan, model, batches, context.rank),
      ranges_(plan, schedules),
      trouble_(config.inject, config.train.seed, context.rank),
      losses_(static_cast<std::size_t>(config.train.accumulate)) {
  std::size_t ops = 0;
  for (const schedule::Schedule& schedule : schedules.steps) ops = std::max(ops, schedule.ops.size());
  slots_.resize(ops);
  trace_.rank = context.rank;
}

void Executor::initialize(const model::FillParameter& fill) {
  if (!context_.device.computes()) return;
  std::vector<std::vector<float>> images;  // stay until the uploads are done
  const auto upload = [&](std::byte* target, std::vector<float> image) {
    if (target == nullptr) return;
    images.push_back(std::move(image));
    const std::vector<float>& host = images.back();
    context_.device.enqueue(
        Lane::compute, "initialize",
        [source = host.data(), target, bytes = static_cast<std::int64_t>(host.size() * 4)](backend::Kernels& kernels) {
          kernels.upload(source, target, bytes);
        },
        nullptr);
  };
  images.reserve(plan_.units.size() * 6);
  const int index = plan_.groups.index(plan::Group::shard, context_.rank);
  for (int u = 0; u < static_cast<int>(plan_.units.size()); ++u) {
    const plan::ShardLayout& layout = plan_.units[static_cast<std::size_t>(u)].layout;
    std::vector<float> shard(static_cast<std::size_t>(layout.shard_numel), 0.0F);
    for (const plan::ShardPiece& piece : layout.pieces(index)) {
      fill(piece.parameter, piece.parameter_offset,
           std::span(shard).subspan(static_cast<std::size_t>(piece.shard_offset),
                                    static_cast<std::size_t>(piece.count)));
    }
    std::vector<float> replicated(static_cast<std::size_t>(layout.replicated_numel), 0.0F);
    for (const plan::ParameterPlacement& p : layout.replicated) {
      fill(p.parameter, 0,
           std::span(replicated)
               .subspan(static_cast<std::size_t>(p.unsharded_offset), static_cast<std::size_t>(p.numel)));
    }
    const std::vector<float> zeros(shard.size(), 0.0F);
    const std::vector<float> zeros_replicated(replicated.size(), 0.0F);
    upload(buffers_.persistent(BufferRole::master_shard, u), std::move(shard));
    upload(buffers_.persistent(BufferRole::master_replicated, u), std::move(replicated));
    upload(buffers_.persistent(BufferRole::first_moment, u), zeros);
    upload(buffers_.persistent(BufferRole::second_moment, u), zeros);
    upload(buffers_.persistent(BufferRole::first_moment_replicated, u), zeros_replicated);
    upload(buffers_.persistent(BufferRole::second_moment_replicated, u), zeros_replicated);
  }
  context_.device.synchronize();
}

void Executor::start_recording(std::int64_t steps) {
  recording_ = true;
  const std::size_t ops = slots_.size() * static_cast<std::size_t>(steps);
  trace_.records.reserve(ops);
  trace_.memory.reserve(ops);
  trace_.steps.reserve(static_cast<std::size_t>(steps));
}

void Executor::sample_memory() {
  const PoolStatistics& statistics = context_.device.memory();
  trace_.memory.push_back({now_ns(), statistics.live, statistics.reserved});
}

void Executor::issue(const Op& op, OpSlot& slot, std::int64_t step, trace::Record* record) {
  backend::Device& device = context_.device;
  trouble_.before_issue();
  if (record != nullptr) record->issued_ns = now_ns();
  if (!op.has_work()) ranges_.begin_on_host(op, step);
  if (op.is_host()) {
    for (const schedule::Wait& wait : op.waits) device.host_wait(wait.event);
    if (op.kind == OpKind::host_sync) device.synchronize();
    if (record != nullptr) record->end_ns = now_ns();
    ranges_.end_on_host();
    return;
  }
  for (const schedule::Wait& wait : op.waits) device.wait(op.lane, wait.event);
  for (schedule::BufferId id : op.allocates) buffers_.allocate(id, op.lane);
  if (op.has_work()) {
    trouble_.before_op(device, op.lane);
    runner_.resolve(op, buffers_, step, &slot);
    ranges_.begin_on_lane(device, op, step);
    if (recording_) device.set_op(static_cast<std::int32_t>(step), record->op);
    backend::Stamp* stamp = recording_ ? &slot.stamp : nullptr;
    if (op.is_collective()) {
      runner_.enqueue_collective(op, slot, communicators_, stamp);
    } else {
      device.enqueue(
          op.lane, schedule::to_string(op.kind).data(),
          [this, &op, &slot](backend::Kernels& kernels) { runner_.run(op, slot, kernels); }, stamp);
    }
    ranges_.end_on_lane(device, op.lane);
  }
  for (schedule::BufferId id : op.frees) buffers_.free(id, op.lane);
  if (op.record != schedule::kNoEvent) device.record(op.record, op.lane);
  if (recording_ && !(op.allocates.empty() && op.frees.empty())) sample_memory();
  if (!op.has_work()) ranges_.end_on_host();
}

float Executor::run_step(std::int64_t step) {
  const schedule::Schedule& schedule = schedules_.of_step(static_cast<std::size_t>(step));
  const std::size_t first_record = trace_.records.size();
  const std::int64_t begin = now_ns();
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
  const std::int64_t issued = now_ns();
  context_.device.synchronize();
  last_step_ns_ = now_ns() - begin;

  if (recording_) {
    context_.device.settle_stamps();
    std::int64_t end = begin;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      if (!schedule.ops[i].has_work()) continue;
      const backend::Stamp& stamp = slots_[i].stamp;
      trace::Record& record = trace_.records[first_record + i];
      record.begin_ns = stamp.begin_ns;
      record.end_ns = stamp.end_ns;
      record.peers_arrived_ns = stamp.peers_arrived_ns;
      end = std::max(end, stamp.end_ns);
    }
    trace_.steps.push_back({begin, end, issued});
    context_.device.set_op(-1, -1);
    take_activities();
  }
  if (!context_.device.computes()) return std::numeric_limits<float>::quiet_NaN();
  const std::byte* loss = buffers_.persistent(BufferRole::loss, -1);
  context_.device.enqueue(
      Lane::compute, "read loss",
      [this, loss](backend::Kernels& kernels) {
        kernels.download(loss, losses_.data(), static_cast<std::int64_t>(losses_.size() * 4));
      },
      nullptr);
  context_.device.synchronize();
  double sum = 0;
  for (float micro : losses_) sum += static_cast<double>(micro);
  return static_cast<float>(sum / static_cast<double>(losses_.size()));
}

void Executor::take_activities() {
  backend::Activities taken = context_.device.take_activities();
  if (taken.all.empty()) return;
  std::vector<std::int32_t> number;  // of each name taken, among all names of the trace
  for (std::string& name : taken.names) {
    const auto [known, fresh] =
        name_numbers_.try_emplace(std::move(name), static_cast<std::int32_t>(trace_.activity_names.size()));
    if (fresh) trace_.activity_names.push_back(known->first);
    number.push_back(known->second);
  }
  for (Activity& activity : taken.all) {
    activity.name = number.at(static_cast<std::size_t>(activity.name));
    if (activity.launch_name >= 0) activity.launch_name = number.at(static_cast<std::size_t>(activity.launch_name));
    trace_.activities.push_back(activity);
  }
}

std::int64_t Executor::collection_bytes(const plan::Plan& plan) {
  std::int64_t most = 0;
  for (const plan::Unit& unit : plan.units) {
    if (unit.layout.shards > 1 && !unit.layout.sharded.empty()) most = std::max(most, unit.layout.gathered_numel() * 4);
  }
  return (most + LanePool::kGranule - 1) / LanePool::kGranule * LanePool::kGranule;
}

std::vector<std::vector<float>> Executor::collect_parameters() {
  std::vector<std::vector<float>> result;
  for (const plan::ParameterShape& p : plan_.shapes.parameters)
    result.emplace_back(static_cast<std::size_t>(p.numel()));
  backend::Device& device = context_.device;
  for (int u = 0; u < static_cast<int>(plan_.units.size()); ++u) {
    const plan::ShardLayout& layout = plan_.units[static_cast<std::size_t>(u)].layout;
    const auto download = [&](const std::byte* source, std::int64_t numel) {
      std::vector<float> host(static_cast<std::size_t>(numel));
      device.enqueue(
          Lane::compute, "collect",
          [source, &host](backend::Kernels& k) {
            k.download(source, host.data(), static_cast<std::int64_t>(host.size() * 4));
          },
          nullptr);
      device.synchronize();
      return host;
    };
    if (!layout.sharded.empty()) {
      std::byte* master = buffers_.persistent(BufferRole::master_shard, u);
      std::byte* gathered = master;
      if (layout.shards > 1) {
        gathered = device.allocate(layout.gathered_numel() * 4, MemoryCategory::communication_buffers, Lane::compute);
        communicators_.of(plan::Group::shard)
            .all_gather(Lane::compute, master, gathered, layout.shard_numel, DType::f32, nullptr);
      }
      const std::vector<float> host = download(gathered, layout.gathered_numel());
      if (gathered != master) device.free(gathered, Lane::compute);
      for (int shard = 0; shard < layout.shards; ++shard) {
        for (const plan::ShardPiece& piece : layout.pieces(shard)) {
          std::copy_n(host.begin() + shard * layout.shard_numel + piece.shard_offset, piece.count,
                      result[static_cast<std::size_t>(piece.parameter)].begin() + piece.parameter_offset);
        }
      }
    }
    if (!layout.replicated.empty()) {
      const std::vector<float> host =
          download(buffers_.persistent(BufferRole::master_replicated, u), layout.replicated_numel);
      for (const plan::ParameterPlacement& p : layout.replicated) {
        std::copy_n(host.begin() + p.unsharded_offset, p.numel, result[static_cast<std::size_t>(p.parameter)].begin());
      }
    }
  }
  return result;
}

}  // namespace fsdpbench::engine
