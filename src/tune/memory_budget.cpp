#include "tune/memory_budget.h"

#include <algorithm>
#include <cmath>

#include "base/enum_table.h"

namespace fsdpbench::tune {

std::string_view to_string(MemoryKind kind) {
  constexpr EnumNames<MemoryKind> kNames{"live", "reserved", "process"};
  return kNames[kind];
}

std::int64_t MemoryBudget::beside(const plan::Plan& plan) const {
  std::int64_t communicators = 0;
  for (std::size_t g = 0; g < plan::kGroupCount; ++g) communicators += plan.groups.exists(static_cast<plan::Group>(g));
  return context_bytes + communicators * communicator_bytes;
}

std::int64_t MemoryBudget::predicted(const MemoryNeed& need, const plan::Plan& plan) const {
  switch (kind) {
    case MemoryKind::live: return need.live;
    case MemoryKind::reserved: return need.reserved;
    case MemoryKind::process: return need.reserved + beside(plan);
  }
  return need.reserved;
}

std::int64_t MemoryBudget::margin(const MemoryNeed& need, const plan::Plan& plan) const {
  const auto held = static_cast<double>(kind == MemoryKind::live ? need.live : need.reserved);
  const double overhead = kind == MemoryKind::process ? static_cast<double>(beside(plan)) : 0.0;
  return std::llround(error * held + overhead_error * overhead);
}

std::int64_t MemoryBudget::capacity(const plan::Plan& plan) const {
  const double overhead = kind == MemoryKind::process ? static_cast<double>(beside(plan)) * (1 + overhead_error) : 0.0;
  return std::max<std::int64_t>(1, std::llround((static_cast<double>(bytes) - overhead) / (1 + error)) - 1);
}

MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t bytes, MemoryKind kind) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  MemoryBudget budget{.bytes = bytes, .kind = kind};
  const bool gpus = config.device.backend == config::BackendKind::cuda || !config.simulate.cluster.empty();
  if (!gpus) return budget;
  budget.error = 0.03;
  budget.context_bytes = 3 * kGiB / 2;
  budget.communicator_bytes = kGiB / 2;
  budget.overhead_error = 0.5;
  return budget;
}

}  // namespace fsdpbench::tune
