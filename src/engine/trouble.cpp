#include "engine/trouble.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "backend/kernels.h"
#include "base/clock.h"

namespace fsdpbench::engine {

Trouble::Trouble(const config::Inject& inject, std::uint64_t seed, int rank)
    : host_(whole_ns(inject.host_delay_us * 1000)),
      jitter_(whole_ns(inject.jitter_us * 1000)),
      random_(seed * 1000003 + static_cast<std::uint64_t>(rank)) {
  if (inject.delay_rank >= 0 && inject.delay_rank != rank) return;
  for (Lane lane : kLanes) {
    if (inject.delay_lane == to_string(lane)) fixed_[index_of(lane)] = whole_ns(inject.delay_us * 1000);
  }
}

void Trouble::before_issue() const { std::this_thread::sleep_for(std::chrono::nanoseconds(host_)); }

void Trouble::before_op(backend::Device& device, Lane lane) {
  std::int64_t delay = fixed_[index_of(lane)];
  if (jitter_ > 0) delay += std::uniform_int_distribution<std::int64_t>(0, jitter_)(random_);
  if (delay == 0) return;
  device.enqueue(
      lane, "injected delay", [delay](backend::Kernels& kernels) { kernels.delay(delay); }, nullptr);
}

using plan::Group;

Communicators::Communicators(backend::RankContext& context, const plan::Groups& groups) {
  for (const Group group : {Group::shard, Group::shard_separate, Group::reshard, Group::replicate, Group::tensor,
                            Group::expert, Group::expert_shard, Group::expert_shard_separate}) {
    if (!groups.exists(group)) continue;
    auto& communicator = communicators_[group];
    communicator = context.world.split(groups.number(group, context.rank), context.rank);
    communicator->set_name(to_string(group));
  }
}

backend::Communicator& Communicators::of(Group group) {
  const auto& communicator = communicators_[group];
  if (!communicator) throw std::logic_error("Communicators::of: the plan has no such communicator");
  return *communicator;
}

backend::WireBytes Communicators::wire_bytes() const {
  backend::WireBytes total{};
  for (const auto& communicator : communicators_) {
    if (!communicator) continue;
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += communicator->wire_bytes()[i];
  }
  return total;
}

}  // namespace fsdpbench::engine
