// Making and ending communicators.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
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
  group->members[static_cast<std::size_t>(rank)] = comm;
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
      child->parent = parent.members[static_cast<std::size_t>(ranks[i])];
      child->device = child->parent->device;
      parent.children[ranks[i]] = child;
    }
  }
  parent.splits.clear();
}

/// A child that its parent failed to make.
ncclComm_t make_stillborn(ncclComm_t parent) {
  ncclComm_t child = make(make_group(1, false), 0);
  child->parent = parent;
  child->device = parent->device;
  child->error = ncclInternalError;
  return child;
}

/// NCCL's work for a split on a thread of its own. The child is there before its parent's job is over, also where
/// that has failed, and says nothing of it.
ncclResult_t split(std::unique_lock<std::mutex>& lock, ncclComm_t parent, ncclComm_t* result, bool blocking) {
  Group& group = *parent->group;
  const bool all = wait(lock, parent, [&] { return group.children.contains(parent->rank); });
  ncclComm_t child = all ? group.children.extract(parent->rank).mapped() : make_stillborn(parent);
  child->blocking = blocking;
  std::atomic_ref<ncclComm_t>(*result).store(child, std::memory_order_release);
  return all ? ncclSuccess : ncclInternalError;
}

ncclResult_t accept(const char* function, const ncclConfig_t* config) {
  if (config == nullptr || (config->blocking != 0 && config->blocking != 1)) {
    return misuse(function, "the configuration does not say whether the communicator blocks");
  }
  state().last_config = *config;
  return ncclSuccess;
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
  std::unique_lock lock(state().mutex);
  if (const ncclResult_t refused = accept(__func__, config); refused != ncclSuccess) return refused;
  const std::string key(id.internal, sizeof id.internal);
  std::shared_ptr<Group>& group = state().worlds[key];
  if (!group) group = make_group(ranks, true);
  ncclComm_t comm = make(group, rank);
  comm->blocking = config->blocking == 1;
  *result = comm;
  cudaGetDevice(&comm->device);
  if (const auto fault = state().init_faults.find(rank); fault != state().init_faults.end()) {
    set_error(comm, fault->second.error, fault->second.words);
  }
  begin(comm, [comm, joined = group](std::unique_lock<std::mutex>& held) {
    return wait(held, comm, [&] { return joined->joined == joined->size; }) ? ncclSuccess : ncclInternalError;
  });
  if (++group->joined == ranks) state().worlds.erase(key);
  state().changed.notify_all();
  return returned(lock, comm, ncclInProgress);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result, ncclConfig_t* config) {
  std::unique_lock lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  if (const ncclResult_t refused = accept(__func__, config); refused != ncclSuccess) return refused;
  if (comm->performed != comm->issued) return misuse(__func__, "the communicator has operations under way");
  *result = nullptr;
  Group& group = *comm->group;
  group.splits[comm->rank] = {color, key};
  if (static_cast<int>(group.splits.size()) == group.size) carry_out_split(group);
  const bool blocking = config->blocking == 1;
  begin(comm, [=](std::unique_lock<std::mutex>& held) { return split(held, comm, result, blocking); });
  state().changed.notify_all();
  return returned(lock, comm, ncclSuccess);  // and goes on: init.cc asks nobody once the group has ended
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  const std::lock_guard lock(state().mutex);
  if (comm == nullptr || comm->gone) return misuse(__func__, "the communicator has ended");
  *result = progress(comm);
  if (!comm->busy && comm->polls > 0) --comm->polls;
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
  std::unique_lock lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  comm->finalized = true;
  ++comm->group->finalized;
  begin(comm, [comm](std::unique_lock<std::mutex>& held) {
    const Group& group = *comm->group;
    return wait(held, comm, [&] { return group.finalized == group.size; }) ? ncclSuccess : ncclInternalError;
  });
  state().changed.notify_all();
  return returned(lock, comm, ncclInProgress);
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
  if (comm->parent != nullptr && comm->parent->busy && !comm->parent->gone) {
    misuse(__func__, "its parent's split, which makes it, is in progress: abort that first");
  }
  if (comm->blocking && comm->busy) misuse(__func__, "a blocking call of it is under way on another thread");
  comm->gone = true;
  ++state().counts.aborted;
  state().changed.wait(lock, [] { return !state().abort_hangs; });
  comm->aborted = true;
  state().changed.notify_all();
  lock.unlock();
  if (comm->job.joinable()) comm->job.join();
  return ncclSuccess;
}
