#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/fake/nccl/fake_comm.h"
#include "base/dtype.h"

namespace fake::nccl {
namespace {

std::size_t size_of(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclBfloat16 ? 2 : type == ncclFloat64 ? 8 : 4;
}

bool match(const Call& a, const Call& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.scale == b.scale && a.root == b.root;
}

/// Element by element: the sum over ranks in rank order, in fp32, times `scale`, rounded once.
void reduce(const Op& op, const Call& call, std::size_t first, std::vector<char>& result) {
  const std::size_t element = size_of(call.type);
  for (std::size_t i = 0; i < call.count; ++i) {
    float sum = 0;
    std::int32_t integer = 0;
    bool begun = false;
    for (const auto& [rank, theirs] : op.calls) {
      const char* const source = static_cast<const char*>(theirs.input) + (first + i) * element;
      float value = 0;
      std::int32_t whole = 0;
      std::uint16_t half = 0;
      if (call.type == ncclBfloat16) {
        std::memcpy(&half, source, 2);
        value = fsdpbench::bf16_to_float(half);
      } else {
        std::memcpy(&value, source, 4);
        std::memcpy(&whole, source, 4);
      }
      sum = begun ? sum + value : value;
      integer += whole;
      begun = true;
    }
    sum *= call.scale;
    const std::uint16_t half = fsdpbench::float_to_bf16(sum);
    char* const target = result.data() + i * element;
    if (call.type == ncclBfloat16) {
      std::memcpy(target, &half, 2);
    } else if (call.type == ncclInt32) {
      std::memcpy(target, &integer, 4);
    } else {
      std::memcpy(target, &sum, 4);
    }
  }
}

/// Bytes that `rank` gets out of the collective.
std::vector<char> result_of(const Op& op, int rank) {
  const Call& call = op.calls.at(rank);
  const std::size_t bytes = call.count * size_of(call.type);
  const bool of_each = call.kind == Kind::all_gather || call.kind == Kind::exchange;
  std::vector<char> result(bytes * (of_each ? op.calls.size() : 1));
  switch (call.kind) {
    case Kind::exchange:
      for (const auto& [r, theirs] : op.calls) {
        const void* const sent = theirs.sends[static_cast<std::size_t>(rank)];
        if (sent != nullptr) std::memcpy(result.data() + static_cast<std::size_t>(r) * bytes, sent, bytes);
      }
      break;
    case Kind::all_gather:
      for (const auto& [r, theirs] : op.calls) {
        std::memcpy(result.data() + static_cast<std::size_t>(r) * bytes, theirs.input, bytes);
      }
      break;
    case Kind::broadcast: std::memcpy(result.data(), op.calls.at(call.root).input, bytes); break;
    case Kind::all_reduce: reduce(op, call, 0, result); break;
    case Kind::reduce_scatter: reduce(op, call, static_cast<std::size_t>(rank) * call.count, result); break;
  }
  return result;
}

void deliver(const Call& call, const std::vector<char>& result) {
  if (result.empty()) return;
  if (call.kind != Kind::exchange) {
    std::memcpy(call.output, result.data(), result.size());
    return;
  }
  const std::size_t bytes = result.size() / call.receives.size();
  for (std::size_t r = 0; r < call.receives.size(); ++r) {
    if (call.receives[r] != nullptr) std::memcpy(call.receives[r], result.data() + r * bytes, bytes);
  }
}

/// A fault of this op on this rank; null if it has none.
const Fault* fault_of(ncclComm_t comm, std::int64_t number) {
  if (!comm->group->is_world) return nullptr;
  const auto fault = state().op_faults.find({comm->rank, number});
  return fault == state().op_faults.end() ? nullptr : &fault->second;
}

/// Whether each rank receives what the others send to it, and nothing else.
bool sends_meet_receives(const Op& op, int rank, const Call& call) {
  return call.kind != Kind::exchange || std::ranges::all_of(op.calls, [&](const auto& other) {
           const bool sent = other.second.sends[static_cast<std::size_t>(rank)] != nullptr;
           return sent == (call.receives[static_cast<std::size_t>(other.first)] != nullptr);
         });
}

void start_if_all_are_here(Group& group, Op& op) {
  if (static_cast<int>(op.calls.size()) < group.size) return;
  for (const auto& [rank, call] : op.calls) {
    if (match(call, op.calls.begin()->second) && sends_meet_receives(op, rank, call)) continue;
    for (ncclComm_t member : group.members) {
      set_error(member, ncclInvalidUsage, "the ranks call different collectives");
    }
    return;  // real kernels would wait for each other
  }
  op.goes = true;
}

/// On the stream's thread: takes part in the collective, or hangs until the communicator is aborted.
void perform(ncclComm_t comm, std::int64_t number, const Call& call) {
  State& all = state();
  std::unique_lock lock(all.mutex);
  all.changed.wait(lock, [&] { return comm->performed == number - 1 || comm->aborted; });
  if (const Fault* fault = fault_of(comm, number)) {
    if (fault->error != ncclSuccess) set_error(comm, fault->error, fault->words);
    all.changed.wait(lock, [&] { return comm->aborted; });
  }
  if (comm->aborted) return;
  Group& group = *comm->group;
  Op& op = group.ops[number];
  op.calls[comm->rank] = call;
  start_if_all_are_here(group, op);
  all.changed.notify_all();
  all.changed.wait(lock, [&] { return op.goes || comm->aborted; });
  if (!op.goes) {
    op.calls.erase(comm->rank);
    return;
  }
  lock.unlock();
  const std::vector<char> result = result_of(op, comm->rank);
  lock.lock();
  ++op.read;
  all.changed.notify_all();
  all.changed.wait(lock, [&] { return op.read == group.size; });
  deliver(call, result);
  comm->performed = number;
  if (++op.done == group.size) group.ops.erase(number);
  all.changed.notify_all();
}

/// NCCL's work for a collective on a thread of its own: the first one of a communicator connects it, which takes
/// all ranks; then the kernel is launched.
ncclResult_t launch(std::unique_lock<std::mutex>& lock, const char* kernel, const Call& call, ncclComm_t comm,
                    std::int64_t number, cudaStream_t stream) {
  Group& group = *comm->group;
  if (!std::exchange(comm->connected, true)) {
    ++group.connecting;
    state().changed.notify_all();
    if (!wait(lock, comm, [&] { return group.connecting == group.size; })) return ncclInternalError;
  }
  lock.unlock();
  run_on_stream(stream, [comm, number, call] { perform(comm, number, call); },
                {.kind = WorkKind::kernel, .name = kernel, .bytes = 0});
  lock.lock();
  return ncclSuccess;
}

ncclResult_t enqueue(const char* function, const char* kernel, const Call& call, ncclComm_t comm, cudaStream_t stream) {
  std::unique_lock lock(state().mutex);
  ncclResult_t refused = usable(function, comm);
  if (refused == ncclSuccess && device_of(stream) != comm->device) {
    refused = misuse(function, "the stream is another GPU's than the communicator");
  }
  if (refused != ncclSuccess) {
    if (comm != nullptr && comm->error == ncclSuccess) comm->error = refused;  // and stays unusable
    return refused;
  }
  if (call.count == 0) return ncclSuccess;
  const std::int64_t number = ++comm->issued;
  begin(comm, [=](std::unique_lock<std::mutex>& held) { return launch(held, kernel, call, comm, number, stream); });
  return returned(lock, comm, ncclInProgress);
}

/// Factor of the sum over `comm`'s ranks; the lock is not held.
float scale_of(ncclRedOp_t op, ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (op == ncclAvg) return 1.0F / static_cast<float>(comm->group->size);
  if (op == ncclSum) return 1.0F;
  const auto& known = comm->operators.at(static_cast<std::size_t>(op - ncclNumOps));
  if (!known) misuse("collective", "its operator is destroyed");
  return known ? known->second : 0.0F;
}

/// Calls of the calling thread since ncclGroupStart.
struct OpenGroup {
  bool open = false;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  Call call{.kind = Kind::exchange};
  std::string wrong;

  void add(ncclComm_t in, cudaStream_t on, std::size_t count, ncclDataType_t type, int peer, const void* send,
           void* receive) {
    if (comm == nullptr) {
      comm = in;
      stream = on;
      call.count = count;
      call.type = type;
      call.sends.resize(static_cast<std::size_t>(in->group->size));
      call.receives.resize(call.sends.size());
    }
    if (comm != in || stream != on || call.count != count || call.type != type) {
      wrong = "this stand-in takes groups of one communicator, stream, count and type";
    } else if (peer < 0 || peer >= in->group->size) {
      wrong = "there is no such peer";
    } else if (send != nullptr && std::exchange(call.sends[static_cast<std::size_t>(peer)], send) != nullptr) {
      wrong = "two sends to one peer";
    } else if (receive != nullptr && std::exchange(call.receives[static_cast<std::size_t>(peer)], receive) != nullptr) {
      wrong = "two receives from one peer";
    }
  }
};
thread_local OpenGroup open_group;

ncclResult_t add_to_group(const char* function, ncclComm_t comm, cudaStream_t stream, std::size_t count,
                          ncclDataType_t type, int peer, const void* send, void* receive) {
  const std::lock_guard lock(state().mutex);
  if (!open_group.open) return misuse(function, "outside a group it waits for a peer that waits for this rank");
  open_group.add(comm, stream, count, type, peer, send, receive);
  return ncclSuccess;
}

}  // namespace
}  // namespace fake::nccl

using namespace fake::nccl;

ncclResult_t ncclGroupStart() {
  open_group = {};
  open_group.open = true;
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_to_group(__func__, comm, stream, count, type, peer, memory, nullptr);
}

ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add_to_group(__func__, comm, stream, count, type, peer, nullptr, memory);
}

ncclResult_t ncclGroupEnd() {
  const OpenGroup group = std::exchange(open_group, {});
  if (group.open && group.comm == nullptr) return ncclSuccess;
  const auto is_given = [](const void* memory) { return memory != nullptr; };
  std::string wrong = group.wrong;
  if (!group.open) wrong = "no group was started";
  if (wrong.empty() &&
      std::ranges::count_if(group.call.sends, is_given) != std::ranges::count_if(group.call.receives, is_given)) {
    wrong = "a send or a receive is missing, and somebody waits for it";
  }
  if (!wrong.empty()) {
    const std::lock_guard lock(state().mutex);
    return misuse(__func__, wrong);
  }
  return enqueue(__func__, "ncclDevKernel_SendRecv", group.call, group.comm, group.stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const Call call{.kind = Kind::all_gather, .input = input, .output = output, .count = count, .type = type};
  return enqueue(__func__, "ncclDevKernel_AllGather_RING_LL", call, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Kind::reduce_scatter,
                  .input = input,
                  .output = output,
                  .count = count,
                  .type = type,
                  .scale = scale_of(op, comm)};
  return enqueue(__func__, "ncclDevKernel_ReduceScatter_RING_LL", call, comm, stream);
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Kind::all_reduce,
                  .input = input,
                  .output = output,
                  .count = count,
                  .type = type,
                  .scale = scale_of(op, comm)};
  return enqueue(__func__, "ncclDevKernel_AllReduce_RING_LL", call, comm, stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{
      .kind = Kind::broadcast, .input = input, .output = output, .count = count, .type = type, .root = root};
  return enqueue(__func__, "ncclDevKernel_Broadcast_RING_LL", call, comm, stream);
}
