#include "backend/cpu/link.h"

#include <algorithm>
#include <limits>

#include "base/duration.h"

namespace fsdpbench::backend::cpu {

Links::Links(launch::Abort& abort, const LinkModel& model, int ranks, const std::vector<double>& slowdown)
    : latency_ns_(model.latency_seconds * 1e9), links_(static_cast<std::size_t>(ranks)), later_(abort) {
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    links_[rank].bytes_per_ns = model.bytes_per_second * 1e-9 / (slowdown.empty() ? 1.0 : slowdown.at(rank));
  }
}

void Links::drop_finished(Link& link) {
  constexpr double kRounding_bytes = 1e-3;
  std::erase_if(link.flows,
                [&](const Flow& flow) { return flow.active_ns <= link.now_ns && flow.bytes_left <= kRounding_bytes; });
}

/// Lets bytes flow until a flow becomes active, the first one ends, or `until_ns`. Returns the new time.
double Links::run_to_next_change(Link& link, double until_ns) {
  double next = until_ns;
  double fewest_bytes = std::numeric_limits<double>::infinity();
  double active = 0;
  for (const Flow& flow : link.flows) {
    if (flow.active_ns > link.now_ns) {
      next = std::min(next, flow.active_ns);
    } else {
      fewest_bytes = std::min(fewest_bytes, flow.bytes_left);
      active += 1;
    }
  }
  const double share = link.bytes_per_ns / std::max(active, 1.0);
  const double first_end = link.now_ns + fewest_bytes / share;
  const bool ends = active > 0 && first_end <= next;
  const double bytes = ends ? fewest_bytes : (next - link.now_ns) * share;
  for (Flow& flow : link.flows) {
    if (flow.active_ns <= link.now_ns) flow.bytes_left -= bytes;
  }
  link.now_ns = ends ? first_end : next;
  return link.now_ns;
}

void Links::advance(Link& link, double until_ns) {
  drop_finished(link);
  while (!link.flows.empty() && link.now_ns < until_ns) {
    run_to_next_change(link, until_ns);
    drop_finished(link);
  }
  link.now_ns = std::max(link.now_ns, until_ns);
}

/// Runs a copy of the link empty and moves the ends of its transfers to where they come out.
void Links::predict_ends(Link link) {
  drop_finished(link);
  while (!link.flows.empty()) {
    const std::vector<Flow> before = link.flows;
    const std::int64_t now = whole_ns(run_to_next_change(link, std::numeric_limits<double>::infinity()));
    drop_finished(link);
    for (const Flow& flow : before) {
      const bool left = std::none_of(link.flows.begin(), link.flows.end(),
                                     [&](const Flow& other) { return other.transfer == flow.transfer; });
      if (left && flow.transfer->end_ns.load() < now) flow.transfer->end_ns.store(now);
    }
  }
}

std::shared_ptr<Transfer> Links::begin(std::span<const int> ranks, std::int64_t bytes, int hops, std::int64_t start_ns,
                                       std::uint64_t id) {
  const auto transfer = std::make_shared<Transfer>();
  transfer->id = id;
  const auto start = static_cast<double>(start_ns);
  const double latency = latency_ns_ * hops;
  transfer->end_ns.store(whole_ns(start + latency));
  const std::lock_guard lock(mutex_);
  bool shared = false;
  for (const int rank : ranks) {
    Link& link = links_[static_cast<std::size_t>(rank)];
    advance(link, start);
    shared = shared || !link.flows.empty();
    link.flows.push_back({transfer, start + latency, static_cast<double>(bytes)});
    predict_ends(link);
  }
  if (shared) later_.notify();
  return transfer;
}

std::vector<FlowState> Links::flows_of(int rank, std::int64_t at_ns) {
  const std::lock_guard lock(mutex_);
  Link& link = links_[static_cast<std::size_t>(rank)];
  advance(link, static_cast<double>(at_ns));
  std::vector<FlowState> flows;
  for (const Flow& flow : link.flows) flows.push_back({flow.transfer->id, flow.active_ns, flow.bytes_left});
  return flows;
}

void Links::learn(int rank, std::span<const FlowState> flows, std::int64_t at_ns) {
  const std::lock_guard lock(mutex_);
  Link& link = links_[static_cast<std::size_t>(rank)];
  advance(link, static_cast<double>(at_ns));
  for (const FlowState& told : flows) {
    const bool known = std::any_of(link.flows.begin(), link.flows.end(),
                                   [&](const Flow& flow) { return flow.transfer->id == told.id; });
    // This link may already be past `at_ns`: what went through since, at most, is no longer to be shared with.
    const double gone = std::max(0.0, link.now_ns - std::max(static_cast<double>(at_ns), told.active_ns));
    const double left = told.bytes_left - gone * link.bytes_per_ns;
    if (known || left <= 0) continue;
    const auto transfer = std::make_shared<Transfer>();
    transfer->id = told.id;
    link.flows.push_back({transfer, told.active_ns, left});
  }
}

void Links::wait(const Transfer& transfer) {
  for (;;) {
    const std::int64_t end_ns = transfer.end_ns.load();
    if (now_ns() >= end_ns) return;
    later_.wait_until(end_ns, [&] { return transfer.end_ns.load() != end_ns; });
  }
}

}  // namespace fsdpbench::backend::cpu
