#include <cstdio>
#include <cstdlib>

#include "backend/cuda/fake/nccl/fake_comm.h"

namespace fake::nccl {

State& state() {
  static State all;
  return all;
}

ncclResult_t misuse(const char* function, const std::string& what) {
  state().misuses += std::string(function) + ": " + what + "\n";
  state().last_words = what;
  return ncclInvalidArgument;
}

ncclResult_t usable(const char* function, ncclComm_t comm) {
  if (comm == nullptr || comm->gone) return misuse(function, "the communicator has ended");
  if (progress(comm) == ncclInProgress) return misuse(function, "the call before is in progress");
  if (comm->finalized) return misuse(function, "the communicator is finalized");
  return comm->error;
}

ncclResult_t progress(ncclComm_t comm) {
  if (comm->error != ncclSuccess) return comm->error;
  return comm->busy || comm->polls > 0 ? ncclInProgress : ncclSuccess;
}

void begin(ncclComm_t comm, Job job) {
  if (comm->job.joinable()) comm->job.join();  // it is over, as the communicator is usable
  comm->busy = true;
  comm->polls = comm->blocking ? 0 : state().polls;
  comm->job = std::thread([comm, job = std::move(job)] {
    std::unique_lock lock(state().mutex);
    const ncclResult_t result = job(lock);
    if (result != ncclSuccess && comm->error == ncclSuccess) comm->error = result;
    comm->busy = false;
    state().changed.notify_all();
  });
}

ncclResult_t returned(std::unique_lock<std::mutex>& lock, ncclComm_t comm, ncclResult_t at_once) {
  if (!comm->blocking) return at_once;
  state().changed.notify_all();
  state().changed.wait(lock, [&] { return !comm->busy; });
  return comm->error;
}

bool wait(std::unique_lock<std::mutex>& lock, ncclComm_t comm, const std::function<bool()>& ready) {
  state().changed.wait(lock, [&] { return comm->aborted || ready(); });
  return ready();
}

void set_error(ncclComm_t comm, ncclResult_t error, const std::string& words) {
  comm->error = error;
  comm->words = words;
  state().last_words = words;
}

Counts counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

std::string misuses() {
  const std::lock_guard lock(state().mutex);
  return state().misuses;
}

ncclConfig_t last_config() {
  const std::lock_guard lock(state().mutex);
  return state().last_config;
}

void set_version(int version) {
  const std::lock_guard lock(state().mutex);
  state().version = version;
}

void set_polls(int polls) {
  const std::lock_guard lock(state().mutex);
  state().polls = polls;
}

void refuse_windows() {
  const std::lock_guard lock(state().mutex);
  state().windows_refused = true;
}

void fail_init(int rank, ncclResult_t error, const std::string& words) {
  const std::lock_guard lock(state().mutex);
  state().init_faults[rank] = {error, words};
}

void fail_op(int rank, std::int64_t number, ncclResult_t error, const std::string& words) {
  const std::lock_guard lock(state().mutex);
  state().op_faults[{rank, number}] = {error, words};
}

void hang_op(int rank, std::int64_t number) {
  const std::lock_guard lock(state().mutex);
  state().op_faults[{rank, number}] = {};
}

void hang_abort() {
  const std::lock_guard lock(state().mutex);
  state().abort_hangs = true;
}

void release_abort() {
  const std::lock_guard lock(state().mutex);
  state().abort_hangs = false;
  state().changed.notify_all();
}

void reset() {
  State& all = state();
  std::vector<std::unique_ptr<ncclComm>> ended;  // destroyed without the lock, which their jobs want
  const std::lock_guard lock(all.mutex);
  all.counts = {};
  all.misuses.clear();
  all.last_config = NCCL_CONFIG_INITIALIZER;
  all.version = NCCL_VERSION_CODE;
  all.polls = 3;
  all.windows_refused = false;
  all.abort_hangs = false;
  all.init_faults.clear();
  all.op_faults.clear();
  all.last_words.clear();
  all.ids = 0;
  all.worlds.clear();
  for (const auto& comm : all.comms) comm->aborted = true;
  all.changed.notify_all();
  ended.swap(all.comms);
}

}  // namespace fake::nccl

ncclComm::~ncclComm() {
  if (job.joinable()) job.join();
}
