#include "backend/cpu/team.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/peers.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/lane_pool.h"
#include "launch/run_ranks.h"

namespace fsdpbench::backend::cpu {
namespace {

/// More than any model needs; allocations are then limited by nothing real.
constexpr std::int64_t kEmulatedMemory_bytes = std::int64_t{1} << 50;

void check_slowdown(const char* name, const std::vector<double>& factors, int ranks) {
  const bool fits = factors.empty() || factors.size() == static_cast<std::size_t>(ranks);
  if (!fits || std::any_of(factors.begin(), factors.end(), [](double factor) { return !(factor >= 1.0); })) {
    throw BackendError(fmt::format("{} needs no factors or one of at least 1 for each of the {} ranks", name, ranks));
  }
}

void check_session(const BackendOptions& options) {
  if (!options.session) return;
  const launch::Placement& placement = options.session->placement();
  if (options.ranks != placement.ranks) {
    throw BackendError(fmt::format("{} ranks are asked for, but the job has {} processes, one rank each", options.ranks,
                                   placement.ranks));
  }
  if (options.get<CpuOptions>().link && placement.local_ranks != placement.ranks) {
    throw BackendError(fmt::format(
        "an emulated link keeps the time of one host, and only {} of the job's {} processes are on this one",
        placement.local_ranks, placement.ranks));
  }
}

std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown exception";
  }
}

}  // namespace

std::int64_t memory_per_rank(int ranks) {
  const std::int64_t machine = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return machine / ranks / LanePool::kGranule * LanePool::kGranule;
}

Team::Team(const BackendOptions& options, KernelsFactory kernels)
    : options_(options), emulation_(options.get<CpuOptions>()), kernels_(std::move(kernels)) {
  if (options.ranks < 1) throw BackendError(fmt::format("{} ranks: at least one is needed", options.ranks));
  check_session(options);
  check_slowdown("link_slowdown", emulation_.link_slowdown, options.ranks);
  check_slowdown("compute_slowdown", emulation_.compute_slowdown, options.ranks);
  if (emulation_.compute_flops_per_s && !(*emulation_.compute_flops_per_s > 0)) {
    throw BackendError("the emulated compute rate must be positive");
  }
  if (emulation_.link) {
    if (!(emulation_.link->bytes_per_second > 0) || !(emulation_.link->latency_seconds >= 0)) {
      throw BackendError("a modelled link needs a positive bandwidth and a latency of at least 0");
    }
    links_.emplace(abort_, *emulation_.link, options.ranks, emulation_.link_slowdown);
  }
  if (options.interrupt != nullptr) {
    options.interrupt->add(*this);
    if (options.interrupt->is_set()) aborted();
  }
  if (options.session) {
    options.session->control().on_failure([this](const launch::JobFailure& failure) {
      abort_.set(std::make_exception_ptr(BackendError(failure.message)));
    });
  }
}

Team::~Team() {
  if (options_.session) options_.session->control().on_failure({});
  if (options_.interrupt != nullptr) options_.interrupt->remove(*this);
}

void Team::aborted() { abort_.set(std::make_exception_ptr(Interrupted())); }

void Team::fail(const std::exception_ptr& failure) {
  abort_.set(failure);
  const std::exception_ptr first = abort_.first();  // a lane's, if `failure` is only its echo at the host
  launch::Session* const session = options_.session;
  if (session && first && !session->control().failure())
    session->control().fail(message_of(first), launch::job_code(first));
}

double Team::compute_slowdown(int rank) const {
  return emulation_.compute_slowdown.empty() ? 1.0 : emulation_.compute_slowdown[rank];
}

/// No more addresses than needed: they count where `ulimit -v` limits them.
std::int64_t Team::memory_bytes() const {
  if (!moves_bytes()) return kEmulatedMemory_bytes + host_pool_bytes();
  const std::int64_t share =
      memory_per_rank(options_.session ? options_.session->placement().local_ranks : options_.ranks);
  return std::min(options_.pool_bytes, share) + host_pool_bytes();
}

std::int64_t Team::host_pool_bytes() const { return round_up(options_.host_pool_bytes, LanePool::kGranule); }

MappedMemory& Team::make_memory() {
  if (process_memory_ != nullptr) return *process_memory_;
  const auto kind = moves_bytes() ? MappedMemory::Kind::touchable : MappedMemory::Kind::addresses_only;
  auto memory = std::make_unique<MappedMemory>(memory_bytes(), kind);
  const std::lock_guard lock(mutex_);
  return *memories_.emplace_back(std::move(memory));
}

void Team::find_neighbours(Peers& all) {
  std::string why_not = emulation_.share_memory ? "" : "FSDPBENCH_SHARE_MEMORY is 0";
  if (moves_bytes() && why_not.empty()) {
    if (auto memory = MappedMemory::make_shared(memory_bytes(), why_not)) {
      process_memory_ = memories_.emplace_back(std::move(memory)).get();
    }
  }
  neighbours_.emplace(all, process_memory_, std::move(why_not));
}

Facts Team::facts() const {
  if (!neighbours_) return {};
  const launch::Session& session = *options_.session;
  const int ranks = session.placement().ranks;
  int seen = 0;
  for (int rank = 0; rank < ranks; ++rank) seen += neighbours_->sees(rank) ? 1 : 0;
  if (seen == ranks) return {{"collectives", "through shared memory"}};
  if (!neighbours_->why_not().empty()) {
    return {{"collectives", fmt::format("by messages over {}: {}", session.transport(), neighbours_->why_not())}};
  }
  return {
      {"collectives", fmt::format("by messages over {}, within this host through shared memory", session.transport())}};
}

void Team::add(std::shared_ptr<Group> group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
}

void Team::rank_ended(int rank) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Group>& group : groups_) group->member_ended(rank);
}

void Team::wait_for_others() {
  for (const std::shared_ptr<Group>& group : groups_) group->wait_ended();
  abort_.throw_if_set();
}

}  // namespace fsdpbench::backend::cpu
