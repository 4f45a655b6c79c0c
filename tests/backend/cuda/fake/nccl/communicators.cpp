// Making and ending communicators.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "backend/cuda/fake/nccl/fake_comm.h"

namespace fake::nccl {
namespace {

ncclComm_t make(const std::shared_ptr<Group>& group, int rank) {
  State& all = state();
  all.comms.push_back(std::make_unique<ncclComm>());
  ncclComm_t comm = all.comms.back().get();
  comm->group = group;
  comm->rank = rank;
  comm->polls = all.polls;
  group->members[static_cast<std::size_t>(rank)] = comm;
  ++group->joined;
  ++all.counts.made;
  return comm;
}

std::shared_ptr<Group> make_group(int size, bool is_world) {
  auto group = std::make_shared<Group>();
  group->size = size;
  group->is_world = is_world;
  group->members.resize(static_cast<std::size_t>(size));
  return group;
}

/// Called when all ranks of `parent` have asked.
void carry_out_split(Group& parent) {
  std::map<int, std::vector<int>> by_color;
  for (const auto& [rank, request] : parent.splits) by_color[request.color].push_back(rank);
  for (auto& [color, ranks] : by_color) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [&](int a, int b) { return parent.splits[a].key < parent.splits[b].key; });
    const auto group = make_group(static_cast<int>(ranks.size()), false);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ncclComm_t child = make(group, static_cast<int>(i));
      std::atomic_ref<ncclComm_t>(*parent.splits[ranks[i]].result).store(child, std::memory_order_release);
    }
  }
  parent.splits.clear();
  for (ncclComm_t member : parent.members) member->splitting = false;
}

ncclResult_t accept(const char* function, const ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) return misuse(function, "the fake has no blocking communicators");
  state().last_config = *config;
  return ncclSuccess;
}

/// Some of what NCCL writes while it connects; `mutex` is held.
void write_log(int rank, int ranks) {
  const char* const level = std::getenv("NCCL_DEBUG");
  const char* const path = std::getenv("NCCL_DEBUG_FILE");
  if (level == nullptr || std::string(level) != "INFO" || path == nullptr) return;
  static std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return;
  const int next = (rank + 1) % ranks;
  for (int channel = 0; channel < 2; ++channel) {
    std::fprintf(file, "host:1:2 [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via SHM/direct/direct\n", rank,
                 channel, rank, rank, next, next);
  }
  std::fflush(file);
}

}  // namespace
}  // namespace fake::nccl

using namespace fake::nccl;

ncclResult_t ncclGetVersion(int* version) {
  const std::lock_guard lock(state().mutex);
  *version = state().version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(state().mutex);
  const char* const address = std::getenv("NCCL_COMM_ID");
  const std::string text = address != nullptr ? address : "fake " + std::to_string(++state().ids);
  *id = {};
  std::strncpy(id->internal, text.c_str(), sizeof id->internal - 1);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "internal error";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  return comm != nullptr && !comm->words.empty() ? comm->words.c_str() : state().last_words.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t refused = accept(__func__, config); refused != ncclSuccess) return refused;
  const std::string key(id.internal, sizeof id.internal);
  std::shared_ptr<Group>& group = state().worlds[key];
  if (!group) group = make_group(ranks, true);
  *result = make(group, rank);
  if (const auto fault = state().init_faults.find(rank); fault != state().init_faults.end()) {
    set_error(*result, fault->second.error, fault->second.words);
  }
  write_log(rank, ranks);
  if (group->joined == ranks) state().worlds.erase(key);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result, ncclConfig_t* config) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  if (const ncclResult_t refused = accept(__func__, config); refused != ncclSuccess) return refused;
  if (comm->performed != comm->issued) return misuse(__func__, "the communicator has operations under way");
  *result = nullptr;
  comm->splitting = true;
  comm->polls = state().polls;
  Group& group = *comm->group;
  group.splits[comm->rank] = {color, key, result};
  if (static_cast<int>(group.splits.size()) == group.size) carry_out_split(group);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const std::lock_guard lock(state().mutex);
  if (comm == nullptr || comm->gone) return misuse(__func__, "the communicator has ended");
  *result = progress(comm);
  if (*result == ncclInProgress && comm->polls > 0) --comm->polls;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const std::lock_guard lock(state().mutex);
  *count = comm->group->size;
  return usable(__func__, comm);
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const std::lock_guard lock(state().mutex);
  *rank = comm->rank;
  return usable(__func__, comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  comm->finalized = true;
  comm->polls = state().polls;
  ++comm->group->finalized;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (comm == nullptr || comm->gone) return misuse(__func__, "the communicator has ended");
  if (!comm->finalized || progress(comm) != ncclSuccess) return misuse(__func__, "the communicator is not finalized");
  comm->gone = true;
  ++state().counts.destroyed;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(state().mutex);
  if (comm == nullptr || comm->gone) return misuse(__func__, "the communicator has ended");
  comm->gone = true;
  ++state().counts.aborted;
  state().changed.wait(lock, [] { return !state().abort_hangs; });
  comm->aborted = true;
  state().changed.notify_all();
  return ncclSuccess;
}
