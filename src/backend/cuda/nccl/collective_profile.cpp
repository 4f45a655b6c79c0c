#include "backend/cuda/nccl/collective_profile.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "backend/communicator.h"
#include "backend/cuda/nccl/profiler_interface.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr const char* kVariable = "NCCL_PROFILER_PLUGIN";
constexpr std::size_t kLongestPath = 255;  // NCCL cuts what is longer

/// "AllGather" is all_gather; whether a message is as large as what each rank gives, or as all of them together.
struct Function {
  std::string_view nccl;
  std::string_view name;
  bool of_all_ranks;
};
constexpr Function kFunctions[] = {
    {"AllGather", to_string(Collective::all_gather), true},
    {"ReduceScatter", to_string(Collective::reduce_scatter), true},
    {"AllReduce", to_string(Collective::all_reduce), false},
    {"Broadcast", to_string(Collective::broadcast), false},
};

/// Bytes of an element, by NCCL's name of its type, which ends in its bits.
std::int64_t element_bytes(std::string_view dtype) {
  const std::size_t digits = dtype.find_first_of("0123456789");
  const int bits = digits == std::string_view::npos ? 0 : std::atoi(std::string(dtype.substr(digits)).c_str());
  return std::max(1, bits / 8);
}

bool waits_for_peer(int state) {
  return state == static_cast<int>(ProxyState::send_peer_wait) || state == static_cast<int>(ProxyState::recv_wait);
}

}  // namespace

/// NCCL's words are literals of its own, which live as long as the process does: pointers tell them apart quickly, but
/// equal words may lie in several places, so text is what counts.
struct CollectiveProfile::Kind {
  const char* function = "";
  std::size_t count_of_elements = 0;
  const char* dtype = "";
  int channels = 0;
  const char* algorithm = "";
  const char* protocol = "";
  int ranks = 0;
  std::atomic<std::int64_t> count{0};
  std::atomic<std::int64_t> transfers{0};
  std::atomic<std::int64_t> peer_wait_ns{0};
};

struct CollectiveProfile::Transfer {
  Kind* kind = nullptr;
  bool waits = false;
  std::int64_t since_ns = 0;
};

CollectiveProfile::CollectiveProfile() : kinds_(kMostKinds), transfers_(kMostTransfers) {
  for (Transfer& transfer : transfers_) free_.push_back(&transfer);
}
CollectiveProfile::~CollectiveProfile() = default;

CollectiveProfile::Kind* CollectiveProfile::collective(const Group& group, const char* function, std::size_t count,
                                                       const char* dtype, int channels, const char* algorithm,
                                                       const char* protocol) {
  const auto is_it = [&](const Kind& k) {
    return k.count_of_elements == count && k.channels == channels && k.ranks == group.ranks &&
           std::strcmp(k.function, function) == 0 && std::strcmp(k.dtype, dtype) == 0 &&
           std::strcmp(k.algorithm, algorithm) == 0 && std::strcmp(k.protocol, protocol) == 0;
  };
  const auto known = [&](std::size_t from) -> Kind* {
    const std::size_t to = kind_count_.load(std::memory_order_acquire);
    for (std::size_t i = from; i < to; ++i) {
      if (is_it(kinds_[i])) return &kinds_[i];
    }
    return nullptr;
  };
  const std::size_t looked_through = kind_count_.load(std::memory_order_acquire);
  Kind* kind = known(0);
  if (kind == nullptr) {
    const std::lock_guard lock(mutex_);
    kind = known(looked_through);
    const std::size_t next = kind_count_.load(std::memory_order_relaxed);
    if (kind == nullptr && next == kinds_.size()) {
      ++left_out_;
      return nullptr;
    }
    if (kind == nullptr) {
      kind = &kinds_[next];
      kind->function = function;
      kind->count_of_elements = count;
      kind->dtype = dtype;
      kind->channels = channels;
      kind->algorithm = algorithm;
      kind->protocol = protocol;
      kind->ranks = group.ranks;
      kind_count_.store(next + 1, std::memory_order_release);
    }
  }
  ++kind->count;
  return kind;
}

void* CollectiveProfile::begin_transfer(Kind* kind) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    ++left_out_;
    return nullptr;
  }
  Transfer* const transfer = free_.back();
  free_.pop_back();
  *transfer = {kind, false, 0};
  return transfer;
}

void CollectiveProfile::enter(void* handle, int state, std::int64_t now_ns) {
  auto* const transfer = static_cast<Transfer*>(handle);
  if (transfer->waits) transfer->kind->peer_wait_ns += now_ns - transfer->since_ns;
  transfer->waits = waits_for_peer(state);
  transfer->since_ns = now_ns;
}

void CollectiveProfile::end_transfer(void* handle, std::int64_t now_ns) {
  auto* const transfer = static_cast<Transfer*>(handle);
  enter(transfer, 0, now_ns);
  ++transfer->kind->transfers;
  const std::lock_guard lock(mutex_);
  free_.push_back(transfer);
}

std::vector<ProfiledCollective> CollectiveProfile::collectives() const {
  std::vector<ProfiledCollective> all;
  const std::size_t count = kind_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const Kind& k = kinds_[i];
    const auto* const function = std::ranges::find(kFunctions, std::string_view(k.function), &Function::nccl);
    const bool known = function != std::end(kFunctions);
    ProfiledCollective& c = all.emplace_back();
    c.name = known ? function->name : std::string_view(k.function);
    c.bytes = static_cast<std::int64_t>(k.count_of_elements) * element_bytes(k.dtype);
    if (known && function->of_all_ranks) c.bytes *= k.ranks;
    c.ranks = k.ranks;
    c.algorithm = k.algorithm;
    c.protocol = k.protocol;
    c.channels = k.channels;
    c.count = k.count;
    c.transfers = k.transfers;
    c.peer_wait_ns = k.peer_wait_ns;
  }
  return all;
}

CollectiveProfile& collective_profile() {
  static auto& profile = *new CollectiveProfile;  // NCCL's network threads may outlive what is static
  return profile;
}

bool name_profiler() {
  static const bool kNamed = [] {
    const char* const asked = std::getenv(kVariable);
    Dl_info own{};
    if (asked == nullptr || std::string_view(asked) != "fsdpbench") return false;
    if (dladdr(&ncclProfiler_v5, &own) == 0 || own.dli_fname == nullptr) return false;
    if (std::strlen(own.dli_fname) > kLongestPath) {
      throw ConfigError(
          fmt::format("{}=fsdpbench: NCCL takes paths of up to {} characters, and this plugin's is longer: {}.",
                      kVariable, kLongestPath, own.dli_fname));
    }
    setenv(kVariable, own.dli_fname, 1);
    return true;
  }();
  return kNamed;
}

Facts profile_facts() {
  Facts facts;
  if (!name_profiler()) return facts;
  const std::vector<ProfiledCollective> all = collective_profile().collectives();
  if (all.empty()) facts.emplace_back("NCCL's profiler", "told nothing: it needs NCCL 2.28 or newer");
  for (const ProfiledCollective& c : all) {
    std::string text = fmt::format("{} {}, {} channels, {} times", c.algorithm, c.protocol, c.channels, c.count);
    if (c.transfers > 0) {
      text += fmt::format("; {} transfers over the network, which waited {:.1f} us for the peer each", c.transfers,
                          static_cast<double>(c.peer_wait_ns) * 1e-3 / static_cast<double>(c.transfers));
    }
    const std::string name = collective_fact(c.name, c.bytes, c.ranks);
    const auto same = std::ranges::find(facts, name, &Facts::value_type::first);
    if (same == facts.end()) {
      facts.emplace_back(name, std::move(text));
    } else {
      same->second += " | " + text;
    }
  }
  if (const std::int64_t count = collective_profile().left_out(); count > 0) {
    facts.emplace_back("NCCL's profiler",
                       fmt::format("{} events were left out: too many kinds, or transfers at a time", count));
  }
  return facts;
}

}  // namespace fsdpbench::backend::cuda
