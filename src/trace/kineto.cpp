#include "trace/kineto.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <span>

namespace fsdpbench::trace {
namespace {

constexpr std::string_view nccl_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return "AllGather";
    case CollectiveKind::reduce_scatter: return "ReduceScatter";
    case CollectiveKind::all_reduce: return "AllReduce";
    case CollectiveKind::broadcast: return "Broadcast";
    case CollectiveKind::all_to_all:
    case CollectiveKind::send_recv: return "SendRecv";
  }
  return {};
}

/// HTA decides by name what is computation; these would make it overlook a kernel.
bool misleads(std::string_view name) {
  for (std::string_view part : {"Memcpy", "Memset", "dma", "Sync", "nccl", "LaunchKernel"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return std::ranges::any_of(std::initializer_list<std::string_view>{"hip", "hccl", "runFunction", "Stream Wait Event"},
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void name_copy(Lane lane, std::string_view inner, std::string& name) {
  const std::string_view way = lane == Lane::host_to_device ? "HtoD" : lane == Lane::device_to_host ? "DtoH" : "DtoD";
  name.append("Memcpy ").append(way).append(" (").append(inner).append(")");
}

void name_collective(const OpLabel& op, std::string_view inner, std::string& name) {
  name.append("ncclDevKernel_");
  if (op.collective) name.append(nccl_name(op.collective->kind));
  name.append("(").append(inner).append(")");
}

void name_computation(std::int32_t index, std::string_view own, std::string& name) {
  if (misleads(own)) {
    name.append("op ").append(std::to_string(index));
  } else {
    name.append(own);
  }
}

}  // namespace

std::string_view torch_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return "_allgather_base";
    case CollectiveKind::reduce_scatter: return "_reduce_scatter_base";
    case CollectiveKind::all_reduce: return "allreduce";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_to_all: return "all_to_allv";
    case CollectiveKind::send_recv: return "send_recv";  // PyTorch has a name for each half
  }
  return {};
}

std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "Float";
    case DType::bf16: return "BFloat16";
    case DType::i32: return "Int";
    case DType::f64: return "Double";
    case DType::u8: return "Byte";
  }
  return {};
}

std::string_view launch_name(OpCategory category) {
  switch (category) {
    case OpCategory::communication: return "cudaLaunchKernelExC";
    case OpCategory::copy: return "cudaMemcpyAsync";
    case OpCategory::computation:
    case OpCategory::host:
    case OpCategory::mark: break;
  }
  return "cudaLaunchKernel";
}

std::string_view name_op_row(const OpLabel& op, std::int32_t index, std::string& name) {
  name.clear();
  if (op.category == OpCategory::copy) {
    name_copy(op.lane, op.name, name);
    return "gpu_memcpy";
  }
  if (op.category == OpCategory::communication) {
    name_collective(op, op.name, name);
  } else {
    name_computation(index, op.name, name);
  }
  return "kernel";
}

std::string_view name_activity_row(const OpLabel& op, std::int32_t index, Activity::Kind kind,
                                   std::string_view device_name, std::string& name) {
  name.clear();
  if (op.category == OpCategory::communication) {  // whatever it is made of
    if (device_name.starts_with("nccl")) {
      name.append(device_name);
    } else {
      name_collective(op, device_name, name);
    }
    return "kernel";
  }
  if (kind == Activity::Kind::fill) {
    if (!device_name.starts_with("Memset")) name.append("Memset ");
    name.append(device_name);
    return "gpu_memset";
  }
  if (kind == Activity::Kind::copy && device_name.starts_with("Memcpy")) {
    name.append(device_name);
    return "gpu_memcpy";
  }
  if (kind == Activity::Kind::copy || op.category == OpCategory::copy) {
    name_copy(op.lane, device_name, name);
    return "gpu_memcpy";
  }
  name_computation(index, device_name, name);
  return "kernel";
}

/// An event names only the first ones and the last of longer lists, as PyTorch's profiler does.
constexpr std::size_t kMostListed = 30;

CollectiveFields::CollectiveFields(const std::vector<ProcessGroup>& groups)
    : groups_(groups), sequence_(groups.size(), 0) {
  for (const ProcessGroup& group : groups_) {
    ranks_.push_back(fmt::format("[{}]", fmt::join(group.ranks, ", ")));
    const bool all = group.ranks.size() <= kMostListed;
    some_ranks_.push_back(all ? ranks_.back()
                              : fmt::format("[{}, ..., {}]",
                                            fmt::join(std::span(group.ranks).first(kMostListed - 1), ", "),
                                            group.ranks.back()));
  }
}

void CollectiveFields::write(EventStream& events, const CollectiveLabel& collective, std::int64_t sequence) const {
  const ProcessGroup& group = groups_.at(collective.group);
  const auto size = static_cast<std::int64_t>(group.ranks.size());
  events.arg(field::kCollectiveName, torch_name(collective.kind));
  const bool exchange = collective.kind == CollectiveKind::all_to_all;
  const bool scatters = exchange || collective.kind == CollectiveKind::reduce_scatter;
  const bool gathers = exchange || collective.kind == CollectiveKind::all_gather;
  events.arg(field::kInElements, collective.count * (scatters ? size : 1));
  events.arg(field::kOutElements, collective.count * (gathers ? size : 1));
  events.arg(field::kGroupSize, size);
  events.arg(field::kDtype, torch_name(collective.dtype));
  events.arg(field::kGroupName, group.name);
  events.arg(field::kGroupDescription, group.description);
  events.arg(field::kGroupRanks, some_ranks_[collective.group]);
  events.arg(field::kSequence, sequence);
}

}  // namespace fsdpbench::trace
