#include "backend/cuda/cupti/record_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>

namespace fsdpbench::backend::cuda {

namespace {

/// Driver calls, to find those that a call of the runtime's made. CUPTI documents that both have one number, and then
/// they are one entry here; where they have two, the work is the inner one's and the outer one will leave none.
class DriverCalls {
 public:
  void add(const Launch& launch) {
    if (launch.call && launch.call->what->kind == CUPTI_ACTIVITY_KIND_DRIVER) {
      ends_[launch.call->thread].emplace(launch.call->begin_ns, launch.call->end_ns);
    }
  }
  bool any_within(const Launch& launch) const {
    if (!launch.works.empty() || !launch.call || launch.call->what->kind != CUPTI_ACTIVITY_KIND_RUNTIME) return false;
    const auto thread = ends_.find(launch.call->thread);
    if (thread == ends_.end()) return false;
    const auto inner = thread->second.lower_bound(launch.call->begin_ns);
    return inner != thread->second.end() && inner->second <= launch.call->end_ns;
  }

 private:
  std::unordered_map<std::uint32_t, std::map<std::int64_t, std::int64_t>> ends_;  // by thread and begin
};

}  // namespace

Launch& RecordTable::entry(std::uint32_t correlation) {
  const auto [found, fresh] = launches_.try_emplace(correlation);
  if (fresh) order_.push_back(correlation);
  return found->second;
}

void RecordTable::add(Decoded decoded) {
  const std::lock_guard lock(mutex_);
  counts_.unknown += decoded.unknown;
  counts_.damaged += decoded.damaged ? 1 : 0;
  for (const Owner& owner : decoded.owners) {
    Launch& launch = entry(owner.correlation);
    if (!launch.owner) launch.owner = OpId::unpack(owner.id);
  }
  for (const Call& call : decoded.calls) {
    Launch& launch = entry(call.correlation);
    if (!launch.call || call.begin_ns < launch.call->begin_ns) launch.call = call;
  }
  for (Work& work : decoded.works) {
    Launch& launch = entry(work.correlation);
    const bool again = std::ranges::any_of(launch.works, [&](const Work& known) {
      return known.begin_ns == work.begin_ns && known.end_ns == work.end_ns && known.stream == work.stream;
    });
    if (again) {
      ++counts_.duplicates;
    } else {
      launch.works.push_back(std::move(work));
    }
  }
  forget_old();
}

void RecordTable::forget_old() {
  while (order_.size() > most_unowned_) {
    const auto oldest = launches_.find(order_.front());
    order_.pop_front();
    if (oldest == launches_.end() || oldest->second.owner) continue;
    if (!oldest->second.call) counts_.without_launch += static_cast<std::int64_t>(oldest->second.works.size());
    launches_.erase(oldest);
  }
}

RecordTable::State RecordTable::state(std::uint32_t timer, std::uint32_t first) const {
  const std::lock_guard lock(mutex_);
  const auto is_wanted = [&](const Launch& launch) {
    return launch.owner && launch.owner->timer == timer && launch.owner->op >= first;
  };
  DriverCalls inner;
  for (const auto& [correlation, launch] : launches_) {
    if (is_wanted(launch)) inner.add(launch);
  }
  State state;
  for (const auto& [correlation, launch] : launches_) {
    if (!is_wanted(launch) || inner.any_within(launch)) continue;
    state.works += launch.works.size();
    const bool running =
        std::ranges::any_of(launch.works, [](const Work& w) { return w.begin_ns != 0 && w.end_ns == 0; });
    if (running) {
      ++state.open;
    } else if (!launch.call) {
      ++state.nameless;
    } else if (launch.call->what->does == KnownCall::Does::mark) {
      ++state.marks;
    } else if (launch.works.empty() && !launch.call->failed) {
      ++(launch.call->what->does == KnownCall::Does::launch ? state.open : state.transfers);
    }
  }
  return state;
}

std::vector<Launch> RecordTable::take(std::uint32_t timer, const std::vector<StreamKey>& streams) {
  const auto is_ours = [&](const Launch& launch) {
    if (launch.owner) return launch.owner->timer == timer;
    return !launch.works.empty() && std::ranges::find(streams, StreamKey{launch.works.front().device,
                                                                         launch.works.front().stream}) != streams.end();
  };
  const std::lock_guard lock(mutex_);
  std::vector<Launch> taken;
  for (auto at = launches_.begin(); at != launches_.end();) {
    if (is_ours(at->second)) {
      taken.push_back(std::move(at->second));
      at = launches_.erase(at);
    } else {
      ++at;
    }
  }
  DriverCalls inner;
  for (const Launch& launch : taken) inner.add(launch);
  std::erase_if(taken, [&](const Launch& launch) { return inner.any_within(launch); });
  return taken;
}

void RecordTable::clear() {
  const std::lock_guard lock(mutex_);
  launches_.clear();
  order_.clear();
}

RecordTable::Counts RecordTable::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::size_t RecordTable::size() const {
  const std::lock_guard lock(mutex_);
  return launches_.size();
}

}  // namespace fsdpbench::backend::cuda
