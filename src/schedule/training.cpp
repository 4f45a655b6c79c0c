#include "schedule/training.h"

#include <bit>

#include "plan/module_work.h"
#include "schedule/build_schedules.h"

namespace fsdpbench::schedule {
namespace {

/// FNV-1a, a word at a time.
class Fingerprint {
 public:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3ULL;
    value_ ^= value_ >> 29;
  }
  template <class Number>
  void add_number(Number number) {
    add(static_cast<std::uint64_t>(number));
  }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

void add_op(const Op& op, const plan::Groups& groups, Fingerprint& hash) {
  hash.add_number(op.kind);
  hash.add_number(op.lane);
  hash.add_number(op.group());
  hash.add_number(op.module);
  if (const Collective* collective = op.collective()) {
    hash.add_number(collective->bytes());
    hash.add_number(groups.size(op.group()));
    hash.add_number(groups.members(op.group(), 0).stride);
  }
  for (const Wait& wait : op.waits) hash.add_number(wait.event);
  hash.add_number(op.record);
  hash.add_number(op.allocates.size());
  for (const BufferId id : op.allocates) hash.add_number(id);
  for (const BufferId id : op.frees) hash.add_number(id);
}

}  // namespace

Training Training::steady() const {
  return {config, plan, policy, sizes, {{schedules.steady()}, schedules.event_count}};
}

Training make_training(const config::RunConfig& config, const SizesOf& sizes) {
  Training training{config, plan::make_plan(config), {}, {}, {}};
  training.sizes = sizes(training.plan);
  plan::set_kept_outputs(config, training.sizes);
  training.policy = make_policy(config);
  training.schedules = build_schedules(training.plan, training.policy, training.sizes);
  return training;
}

Training make_training(const config::RunConfig& config, const std::vector<plan::ModuleSizes>& sizes) {
  return make_training(config, [&](const plan::Plan&) { return sizes; });
}

std::uint64_t fingerprint(const Training& training) {
  Fingerprint hash;
  for (const Schedule& step : training.schedules.steps) {
    for (const Op& op : step.ops) add_op(op, training.plan.groups, hash);
    for (const Buffer& buffer : step.buffers) hash.add_number(buffer.bytes);
  }
  // A module's computation shows in its sizes, not in the schedule.
  for (const plan::ModuleSizes& module : training.sizes) hash.add(module.forward_flops);
  hash.add_number(static_cast<int>(training.plan.param_dtype));
  hash.add(training.config.fsdp.recompute_share);
  hash.add_number(training.config.fsdp.fp8_products);
  hash.add_number(static_cast<int>(training.config.fsdp.fp8_recipe));
  hash.add_number(static_cast<int>(training.config.mesh.expert_rows));
  return hash.value();
}

}  // namespace fsdpbench::schedule
