#include "backend/cpu/link.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace fsdpbench::backend::cpu {

namespace {

void forget(const FluidLink<std::shared_ptr<Transfer>>::Flow& /*ended*/, double /*end_ns*/) {}

}  // namespace

Links::Links(launch::Abort& abort, const LinkModel& model, int ranks, const std::vector<double>& slowdown)
    : latency_ns_(model.latency_seconds * 1e9), later_(abort) {
  for (int rank = 0; rank < ranks; ++rank) {
    links_.emplace_back(model.bytes_per_second * 1e-9 / (slowdown.empty() ? 1.0 : slowdown.at(rank)));
  }
}

/// Runs a copy of the link of `rank` empty and moves the ends of its transfers to where they come out.
void Links::predict_ends(Link link, int rank) {
  link.advance(std::numeric_limits<double>::infinity(), [rank](const Link::Flow& flow, double end) {
    const std::int64_t end_ns = whole_ns(end);
    std::int64_t& mine = flow.name->link_end_ns[rank];
    mine = std::max(mine, end_ns);
    if (flow.name->end_ns.load() < end_ns) flow.name->end_ns.store(end_ns);
  });
}

std::shared_ptr<Transfer> Links::begin(std::span<const int> ranks, std::int64_t bytes, int hops, std::int64_t start_ns,
                                       std::uint64_t id) {
  const auto transfer = std::make_shared<Transfer>();
  transfer->id = id;
  transfer->start_ns = start_ns;
  const auto start = static_cast<double>(start_ns);
  const double latency = latency_ns_ * hops;
  transfer->end_ns.store(whole_ns(start + latency));
  const std::lock_guard lock(mutex_);
  bool shared = false;
  for (const int rank : ranks) {
    Link& link = links_[rank];
    link.advance(start, forget);
    shared = shared || !link.flows().empty();
    link.add({transfer, start + latency, static_cast<double>(bytes)});
    predict_ends(link, rank);
  }
  if (shared) later_.notify();
  return transfer;
}

std::vector<FlowState> Links::flows_of(int rank, std::int64_t at_ns) {
  const std::lock_guard lock(mutex_);
  Link& link = links_[rank];
  link.advance(static_cast<double>(at_ns), forget);
  std::vector<FlowState> flows;
  for (const Link::Flow& flow : link.flows()) flows.push_back({flow.name->id, flow.active_ns, flow.left});
  return flows;
}

void Links::learn(int rank, std::span<const FlowState> flows, std::int64_t at_ns) {
  const std::lock_guard lock(mutex_);
  Link& link = links_[rank];
  link.advance(static_cast<double>(at_ns), forget);
  for (const FlowState& told : flows) {
    const bool known =
        std::ranges::any_of(link.flows(), [&](const Link::Flow& flow) { return flow.name->id == told.id; });
    // This link may already be past `at_ns`: what went through since, at most, is no longer to be shared with.
    const double gone = std::max(0.0, link.now_ns() - std::max(static_cast<double>(at_ns), told.active_ns));
    const double left = told.bytes_left - gone * link.rate();
    if (known || left <= 0) continue;
    const auto transfer = std::make_shared<Transfer>();
    transfer->id = told.id;
    link.add({transfer, told.active_ns, left});
  }
}

std::int64_t Links::end_of(const Transfer& transfer, int rank) {
  const std::lock_guard lock(mutex_);
  const auto at = transfer.link_end_ns.find(rank);
  return at == transfer.link_end_ns.end() ? transfer.end_ns.load() : at->second;
}

void Links::wait(const Transfer& transfer) {
  for (;;) {
    const std::int64_t end_ns = transfer.end_ns.load();
    if (now_ns() >= end_ns) return;
    later_.wait_until(end_ns, [&] { return transfer.end_ns.load() != end_ns; });
  }
}

}  // namespace fsdpbench::backend::cpu
