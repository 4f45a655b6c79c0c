#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/fake/nccl/fake_nccl.h"

namespace fake::nccl {

enum class Kind { all_gather, reduce_scatter, all_reduce, broadcast, exchange };

/// One rank's call of a collective.
struct Call {
  Kind kind = Kind::all_gather;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  float scale = 1.0F;
  int root = 0;
  /// By rank, of an exchange: a group with a send to each and a receive from each.
  std::vector<const void*> sends = {};
  std::vector<void*> receives = {};
};

/// A collective that some ranks have reached. It goes once all have: from then on each reads the others' inputs, and
/// nobody writes or leaves before all have read.
struct Op {
  std::map<int, Call> calls;
  bool goes = false;
  int read = 0;
  int done = 0;
};

struct SplitRequest {
  int color = 0;
  int key = 0;
};

struct Group {
  int size = 0;
  bool is_world = false;
  std::vector<ncclComm_t> members;
  int joined = 0;
  int connecting = 0;  ///< ranks that have come to their first collective
  int finalized = 0;
  std::map<std::int64_t, Op> ops;
  std::map<int, SplitRequest> splits;
  std::map<int, ncclComm_t> children;  ///< of the split that all have asked for, until their ranks take them
  std::map<std::int64_t, std::map<int, std::size_t>> windows;  ///< bytes, by number of the window and rank
};

}  // namespace fake::nccl

struct ncclComm {
  std::shared_ptr<fake::nccl::Group> group;
  ncclComm_t parent = nullptr;  ///< that it is split from
  int rank = 0;
  int device = 0;
  std::thread job;    ///< NCCL's own, for the last call that takes time
  bool busy = false;  ///< it works
  bool blocking = false;
  int polls = 0;  ///< still to say ncclInProgress when it is over
  bool finalized = false;
  bool aborted = false;
  bool gone = false;
  ncclResult_t error = ncclSuccess;
  std::string words;
  std::int64_t issued = 0;
  std::int64_t performed = 0;
  std::int64_t windows = 0;
  bool connected = false;
  std::vector<std::optional<std::pair<ncclDataType_t, float>>> operators;

  ~ncclComm();
};

namespace fake::nccl {

struct Fault {
  ncclResult_t error = ncclSuccess;  ///< success: a hang
  std::string words;
};

/// Everything, behind one lock.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  Counts counts;
  std::string misuses;
  ncclConfig_t last_config = NCCL_CONFIG_INITIALIZER;
  int version = NCCL_VERSION_CODE;
  int polls = 3;
  bool windows_refused = false;
  bool abort_hangs = false;
  std::map<int, Fault> init_faults;
  std::map<std::pair<int, std::int64_t>, Fault> op_faults;
  std::string last_words;
  int ids = 0;
  std::map<std::string, std::shared_ptr<Group>> worlds;  ///< being made, by id
  std::vector<std::unique_ptr<ncclComm>> comms;          ///< kept after their end, to see who uses them
};
State& state();

/// The following want the lock held.

ncclResult_t misuse(const char* function, const std::string& what);
/// Success if `comm` lives and its last call is over, which is when it may be used.
ncclResult_t usable(const char* function, ncclComm_t comm);
ncclResult_t progress(ncclComm_t comm);
/// NCCL's work for a call on a thread of its own. It has the lock, and may leave it to wait.
using Job = std::function<ncclResult_t(std::unique_lock<std::mutex>& lock)>;
/// `comm` is in progress until `job` is over, and `polls` questions more; then it has the error that `job` returned.
void begin(ncclComm_t comm, Job job);
/// Result of a call that began a job: `at_once`, or of a blocking communicator the job's end, which it waits for.
ncclResult_t returned(std::unique_lock<std::mutex>& lock, ncclComm_t comm, ncclResult_t at_once);
/// In a job: waits until `ready`; false if the communicator was aborted before.
bool wait(std::unique_lock<std::mutex>& lock, ncclComm_t comm, const std::function<bool()>& ready);
void set_error(ncclComm_t comm, ncclResult_t error, const std::string& words);

}  // namespace fake::nccl
