#include "hardware/thread_binding.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fsdpbench::hardware {
namespace {

constexpr int kMostProcessors = 8192;

/// A set of processors as the kernel takes it, for more of them than cpu_set_t has.
struct KernelSet {
  cpu_set_t* bits = CPU_ALLOC(kMostProcessors);
  std::size_t bytes = CPU_ALLOC_SIZE(kMostProcessors);
  KernelSet() { CPU_ZERO_S(bytes, bits); }
  ~KernelSet() { CPU_FREE(bits); }
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;
};

/// That the calling thread may use.
Processors current_processors() {
  const KernelSet set;
  Processors all;
  if (sched_getaffinity(0, set.bytes, set.bits) != 0) return all;
  for (int i = 0; i < kMostProcessors; ++i) {
    if (CPU_ISSET_S(i, set.bytes, set.bits)) all.push_back(i);
  }
  return all;
}

bool use_processors(const Processors& processors) {
  const KernelSet set;
  for (const int i : processors) CPU_SET_S(i, set.bytes, set.bits);
  return sched_setaffinity(0, set.bytes, set.bits) == 0;
}

/// Processors that the launcher left this process of its host's; all of them: it has not bound it.
const Processors& given_by_launcher() {
  static const Processors kGiven = current_processors();
  return kGiven;
}

}  // namespace

Processors processors_of_rank(const HostTopology& host, Binding binding, const LocalRank& rank) {
  if (binding == Binding::none) return host.all();
  if (binding == Binding::numa && !rank.gpu.empty()) {
    return host.numa_nodes().size() == 1 ? host.all() : host.near(rank.gpu);
  }
  const std::vector<Processors> parts = binding == Binding::numa ? host.numa_nodes() : host.cores();
  if (parts.empty()) return {};
  const auto part_before = [&](int of_rank) {
    return parts.size() * static_cast<std::size_t>(of_rank) / static_cast<std::size_t>(rank.ranks);
  };
  const std::size_t first = part_before(rank.rank);
  if (binding == Binding::numa) return parts[first];
  Processors all;
  for (std::size_t part = first; part < std::max(part_before(rank.rank + 1), first + 1); ++part) {
    all.insert(all.end(), parts[part].begin(), parts[part].end());
  }
  std::ranges::sort(all);
  return all;
}

ThreadBinding::ThreadBinding(Binding binding, const LocalRank& rank) {
  const Processors& given = given_by_launcher();
  if (binding == Binding::none) return;
  const std::shared_ptr<const HostTopology> host = HostTopology::of_this_host();
  if (host == nullptr)
    throw ConfigError("device.bind cannot be kept: hwloc cannot read this machine's topology; \"none\" works.");
  if (!std::ranges::includes(given, host->all())) {
    text_ = fmt::format("processors {}, as its launcher bound it; device.bind changes nothing", to_text(given));
    return;
  }
  const Processors wanted = processors_of_rank(*host, binding, rank);
  if (wanted.empty()) {
    throw ConfigError(
        fmt::format("device.bind = \"numa\" cannot be kept: this machine does not say which NUMA node the GPU at {} "
                    "hangs on; \"none\" works.",
                    rank.gpu));
  }
  before_ = current_processors();
  if (!use_processors(wanted)) {
    throw ConfigError(
        fmt::format("device.bind cannot be kept: the system does not let this process choose processors {} ({}); "
                    "\"none\" works.",
                    to_text(wanted), std::strerror(errno)));
  }
  text_ = fmt::format("processors {}", to_text(wanted));
  if (const std::optional<int> node = host->numa_node_of(wanted)) text_ += fmt::format(" of NUMA node {}", *node);
  if (!rank.gpu.empty()) text_ += ", near its GPU";
}

ThreadBinding::~ThreadBinding() {
  if (!before_.empty()) use_processors(before_);
}

}  // namespace fsdpbench::hardware
