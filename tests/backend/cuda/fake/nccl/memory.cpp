// Memory, its registration, and operators of reductions.

#include <cuda_runtime_api.h>

#include <cstring>

#include "backend/cuda/fake/nccl/fake_comm.h"
#include "base/dtype.h"

using namespace fake::nccl;

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  if (cudaMalloc(memory, bytes) == cudaSuccess) return ncclSuccess;
  const std::lock_guard lock(state().mutex);
  state().last_words = "Cuda failure 2 'out of memory'";
  return ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  if (memory == nullptr || bytes == 0) return misuse(__func__, "nothing to register");
  *handle = memory;
  ++state().counts.registrations;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* /*handle*/) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  ++state().counts.deregistrations;
  return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes, ncclWindow_t* window, int flags) {
  std::unique_lock lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  if (flags != NCCL_WIN_COLL_SYMMETRIC) return misuse(__func__, "not a symmetric window");
  if (state().windows_refused) return ncclSuccess;
  auto& sizes = comm->group->windows[++comm->windows];
  sizes[comm->rank] = bytes;
  for (const auto& [rank, other] : sizes) {
    if (other != bytes) return misuse(__func__, "the ranks register windows of different sizes");
  }
  begin(comm, [comm, &sizes, memory, window](std::unique_lock<std::mutex>& held) {
    if (!wait(held, comm, [&] { return static_cast<int>(sizes.size()) == comm->group->size; }))
      return ncclInternalError;
    *window = static_cast<ncclWindow_t>(memory);
    ++state().counts.windows;
    return ncclSuccess;
  });
  state().changed.notify_all();
  return returned(lock, comm, ncclSuccess);  // and goes on: dev_runtime.cc passes over what the end of its group says
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t /*window*/) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  ++state().counts.closed_windows;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  if (residence != ncclScalarHostImmediate) return misuse(__func__, "the fake reads scalars of the host only");
  float value = 0;
  if (type == ncclFloat32) {
    std::memcpy(&value, scalar, sizeof value);
  } else if (type == ncclBfloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, scalar, sizeof bits);
    value = fsdpbench::bf16_to_float(bits);
  } else {
    return misuse(__func__, "the fake has no scalars of this type");
  }
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->operators.size()));
  comm->operators.emplace_back(std::pair(type, value));
  ++state().counts.operators;
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const std::lock_guard lock(state().mutex);
  if (const ncclResult_t unusable = usable(__func__, comm); unusable != ncclSuccess) return unusable;
  auto& known = comm->operators.at(static_cast<std::size_t>(op - ncclNumOps));
  if (!known) return misuse(__func__, "the operator is destroyed already");
  known.reset();
  ++state().counts.freed_operators;
  return ncclSuccess;
}
