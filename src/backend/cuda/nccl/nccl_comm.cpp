#include "backend/cuda/nccl/nccl_comm.h"

#include <fmt/format.h>
#include <nccl.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/nccl/nccl_version.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

RegisteredArena::RegisteredArena(std::size_t bytes) {
  void* memory = nullptr;
  const ncclResult_t result = ncclMemAlloc(&memory, bytes);
  if (result == ncclUnhandledCudaError) {
    throw ResourceError(fmt::format("ncclMemAlloc of {}: {}", format_bytes(static_cast<std::int64_t>(bytes)),
                                    nccl_words(result, nullptr)));
  }
  if (result != ncclSuccess) throw BackendError("ncclMemAlloc: " + nccl_words(result, nullptr));
  memory_ = {static_cast<std::byte*>(memory), bytes};
}

RegisteredArena::~RegisteredArena() { ncclMemFree(memory_.data()); }
namespace {

using Clock = std::chrono::steady_clock;

// NCCL launches a collective from a thread that it makes for it, which takes some 20 to 40 us; a nap would double that.
constexpr std::chrono::microseconds kSpin{200};
constexpr std::chrono::microseconds kNap{20};
// More than a schedule ever has unfinished; bounds the events.
constexpr std::size_t kMostInFlight = 1024;

const char* function_of(Collective kind) {
  switch (kind) {
    case Collective::all_gather: return "ncclAllGather";
    case Collective::reduce_scatter: return "ncclReduceScatter";
    case Collective::all_reduce: return "ncclAllReduce";
    case Collective::broadcast: return "ncclBroadcast";
    case Collective::all_to_all:
    case Collective::send_recv: return "ncclGroupEnd";
  }
  return "NCCL";
}

/// Keeps what a thread of NCCL may still write to until the process ends.
void leave_to_nccl(std::unique_ptr<ncclComm_t> handle) {
  static std::mutex mutex;
  static auto& left = *new std::vector<std::unique_ptr<ncclComm_t>>;  // outlives every thread
  const std::lock_guard lock(mutex);
  left.push_back(std::move(handle));
}

std::string describe_op(const OpsInFlight::Op& op, const std::string& group) {
  return fmt::format("{} #{} of group {} on lane {}", to_string(op.kind), op.number, group, to_string(op.lane));
}

}  // namespace

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::f64: return ncclFloat64;
    case DType::u8: return ncclUint8;
  }
  throw std::logic_error("nccl_type: unknown dtype");
}

NcclComm::NcclComm(NcclRank& rank, std::string name)
    : rank_(rank), name_(std::move(name)), handle_(std::make_unique<ncclComm_t>(nullptr)) {}

NcclComm::~NcclComm() {
  if (pending_) leave_to_nccl(std::move(handle_));
}

ncclComm_t NcclComm::handle() const { return std::atomic_ref<ncclComm_t>(*handle_).load(std::memory_order_acquire); }

void NcclComm::init(int ranks, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = nccl_config(rank_.options());
  pending_ = true;
  settle("ncclCommInitRankConfig", [&] { return ncclCommInitRankConfig(handle_.get(), ranks, id, rank, &config); });
  ready();
}

void NcclComm::split_from(NcclComm& parent, int color, int key) {
  if (color < 0) throw std::logic_error("Communicator::split: a color is a number from 0 up");
  rank_.wait([&] { return parent.ops_.oldest() == nullptr; });  // NCCL splits idle communicators only
  ncclConfig_t config = nccl_config(rank_.options());
  pending_ = true;
  // The parent is asked, and it alone: the child is there before, says of itself that all is well, and is also there
  // when its making has failed (NVIDIA/nccl#1472).
  parent.settle("ncclCommSplit", [&] { return ncclCommSplit(parent.handle(), color, key, handle_.get(), &config); });
  pending_ = false;
  if (handle() == nullptr) fail("ncclCommSplit", ncclInternalError);
  ready();
}

void NcclComm::ready() {
  settle("ncclCommCount", [&] { return ncclCommCount(handle(), &size_); });
  settle("ncclCommUserRank", [&] { return ncclCommUserRank(handle(), &rank_in_group_); });
  register_memory();
}

void NcclComm::settle(const char* name, const std::function<ncclResult_t()>& call) {
  ncclResult_t result = ncclSuccess;
  if (CallGuard* const guard = rank_.call_guard()) {
    rank_.stop_if_aborted();
    guard->enter(name, name_);
    result = call();
    guard->leave();
  } else {
    result = outcome(name, call());
  }
  pending_ = false;
  if (result != ncclSuccess) fail(name, result);
}

ncclResult_t NcclComm::outcome(const char* name, ncclResult_t returned) {
  // Splits and windows return success while NCCL still works on them, so what was returned says only if the call was
  // refused.
  ncclResult_t result = returned == ncclSuccess ? ncclInProgress : returned;
  const Clock::time_point begin = Clock::now();
  while (result == ncclInProgress) {
    rank_.stop_if_aborted();
    if (ncclComm_t comm = handle()) {
      const ncclResult_t answer = ncclCommGetAsyncError(comm, &result);
      if (answer != ncclSuccess) result = answer;
      if (result != ncclInProgress) break;
    }
    const Clock::duration waited = Clock::now() - begin;
    if (waited > rank_.deadlines().op) {
      const std::string op = oldest_op();
      rank_.fail(fmt::format("{} of group {} has not finished after {:g} s{}", name, name_,
                             rank_.deadlines().op.count(), op.empty() ? "" : fmt::format(", with {} unfinished", op)));
    }
    if (waited < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  return result;
}

void NcclComm::fail(const std::string& what, ncclResult_t result) {
  const std::string op = oldest_op();
  rank_.fail(fmt::format("{} of group {} failed{}: {}", what, name_,
                         op.empty() ? "" : fmt::format(", with {} unfinished", op), nccl_words(result, handle())));
}

void NcclComm::register_memory() {
  if (rank_.options().registration == NcclOptions::Register::none || size_ == 1) return;
  const std::span<std::byte> memory = rank_.lanes().communication_memory();
  if (memory.empty()) throw std::logic_error("LaneAccess::communication_memory is empty, and it is to be registered");
  if (rank_.options().registration == NcclOptions::Register::local) {
    settle("ncclCommRegister",
           [&] { return ncclCommRegister(handle(), memory.data(), memory.size(), &registration_); });
  } else {
    settle("ncclCommWindowRegister", [&] { return register_window(handle(), memory.data(), memory.size(), &window_); });
    ++rank_.windows_asked;
    rank_.windows_made += window_ != nullptr ? 1 : 0;
  }
}

void NcclComm::deregister_memory() {
  if (registration_ != nullptr) {
    settle("ncclCommDeregister", [&] { return ncclCommDeregister(handle(), std::exchange(registration_, nullptr)); });
  }
  if (window_ != nullptr) {
    settle("ncclCommWindowDeregister", [&] { return deregister_window(handle(), std::exchange(window_, nullptr)); });
  }
}

void NcclComm::run(Collective kind, Lane lane, const Launch& launch, Stamp* stamp) {
  rank_.stop_if_aborted();
  if (ops_.size() >= kMostInFlight) {
    rank_.wait([&] {
      ops_.oldest();
      return ops_.size() < kMostInFlight;
    });
  }
  ops_.follow(lane, rank_.lanes().stream(lane));
  rank_.lanes().run_op(
      lane, to_string(kind).data(), [&](cudaStream_t stream) { launch_op(kind, lane, stream, launch); }, stamp);
}

void NcclComm::launch_op(Collective kind, Lane lane, cudaStream_t stream, const Launch& launch) {
  ops_.begin(kind, lane, stream);
  const Clock::time_point begin = Clock::now();
  settle(function_of(kind),
         [&] { return launch(handle(), stream); });  // nothing may be put behind it on the stream before that
  rank_.launches.add(Clock::now() - begin);
  ops_.end(stream);
}

void NcclComm::barrier() {
  rank_.stop_if_aborted();
  const auto launch = [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(rank_.own_memory(), rank_.own_memory(), 1, ncclFloat32, ncclSum, comm, stream);
  };
  launch_op(Collective::all_reduce, Lane::all_reduce, rank_.own_stream(), launch);
  const std::int64_t number = ops_.issued();
  rank_.wait([&] {
    const OpsInFlight::Op* const op = ops_.oldest();
    return op == nullptr || op->number > number;
  });
}

ncclRedOp_t NcclComm::reduction(DType dtype, float scale) {
  rank_.stop_if_aborted();
  if (scale == 1.0F) return ncclSum;
  if (dtype != DType::f32 && dtype != DType::bf16) {
    throw std::logic_error("Communicator: only sums of fp32 and bf16 are scaled");
  }
  if (scale == 1.0F / static_cast<float>(size_)) return ncclAvg;
  const auto known = reductions_.find({dtype, scale});
  if (known != reductions_.end()) return known->second;
  ncclRedOp_t op = ncclSum;
  std::uint16_t half = float_to_bf16(scale);
  void* const scalar = dtype == DType::bf16 ? static_cast<void*>(&half) : static_cast<void*>(&scale);
  settle("ncclRedOpCreatePreMulSum",
         [&] { return ncclRedOpCreatePreMulSum(&op, scalar, nccl_type(dtype), ncclScalarHostImmediate, handle()); });
  reductions_.emplace(std::pair(dtype, scale), op);
  return op;
}

void NcclComm::check() {
  if (size_ == 0 || ended_) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t answer = ncclCommGetAsyncError(handle(), &state);
  if (answer != ncclSuccess) state = answer;
  if (state != ncclSuccess && state != ncclInProgress) fail("the communicator", state);
  const OpsInFlight::Op* const op = ops_.oldest();
  if (op != nullptr && op->running && Clock::now() - op->running_since > rank_.deadlines().op) {
    rank_.fail(fmt::format("{} has not finished after {:g} s; this rank has issued {} there", describe_op(*op, name_),
                           rank_.deadlines().op.count(), ops_.issued()));
  }
}

std::string NcclComm::oldest_op() {
  try {
    const OpsInFlight::Op* const op = ops_.oldest();
    return op != nullptr ? describe_op(*op, name_) : "";
  } catch (const Error&) {
    return fmt::format("#{} or earlier of group {}", ops_.issued(), name_);  // the GPU itself has failed
  }
}

void NcclComm::finish() {
  for (const auto& reduction : reductions_) {
    settle("ncclRedOpDestroy", [&] { return ncclRedOpDestroy(reduction.second, handle()); });
  }
  reductions_.clear();
  rank_.wait([&] { return ops_.oldest() == nullptr; });
  deregister_memory();
  settle("ncclCommFinalize", [&] { return ncclCommFinalize(handle()); });
  ended_ = true;
  ncclCommDestroy(handle());  // frees what is left, with the communicator it would report on
}

void NcclComm::abort() noexcept {
  if (std::exchange(ended_, true) || handle() == nullptr) return;
  ncclCommAbort(handle());
}

NcclRank::NcclRank(LaneAccess& lanes, int rank, const NcclOptions& options, NcclDeadlines deadlines)
    : lanes_(lanes), rank_(rank), options_(options), deadlines_(std::move(deadlines)) {
  // Before any collective is under way: to allocate or free beside one can hang.
  cuda::check(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  cuda::check(cudaMalloc(&own_memory_, 4), "cudaMalloc of 4 bytes for barriers");
  cuda::check(cudaMemsetAsync(own_memory_, 0, 4, own_stream_), "cudaMemsetAsync");
  if (options_.blocking) {
    call_guard_ = std::make_unique<CallGuard>(lanes_.abort(), CallDeadlines{deadlines_.op, deadlines_.abort},
                                              fmt::format("rank {}", rank_), deadlines_.give_up);
  }
  lanes_.watch([this] { check(); });
}

NcclRank::~NcclRank() {
  lanes_.watch({});
  if (!comms_.empty()) abort_all();
  comms_.clear();
  cudaFree(own_memory_);
  cudaStreamDestroy(own_stream_);
}

NcclComm& NcclRank::init(int ranks, const ncclUniqueId& id) {
  comms_.push_back(std::make_unique<NcclComm>(*this, "world"));
  comms_.back()->init(ranks, id, rank_);
  return *comms_.back();
}

NcclComm& NcclRank::split(NcclComm& parent, int color, int key) {
  comms_.push_back(std::make_unique<NcclComm>(*this, fmt::format("{} split {}", parent.name(), color)));
  comms_.back()->split_from(parent, color, key);
  return *comms_.back();
}

void NcclRank::close(NcclComm& comm) noexcept {
  try {
    stop_if_aborted();
    comm.finish();
    std::erase_if(comms_, [&](const auto& candidate) { return candidate.get() == &comm; });
  } catch (const std::exception&) {
    // The run has failed, and its first failure is known: `comm` is aborted, or will be with the others.
  }
}

void NcclRank::check() {
  stop_if_aborted();
  for (const auto& comm : comms_) comm->check();
}

void NcclRank::stop_if_aborted() {
  if (!lanes_.abort().is_set()) return;
  abort_all();
  lanes_.abort().throw_if_set();
}

void NcclRank::fail(const std::string& what) {
  const auto failure = std::make_exception_ptr(BackendError(fmt::format("rank {}: {}", rank_, what)));
  lanes_.abort().set(failure);  // first: the others need not wait for what may hang
  abort_all();
  if (lanes_.abort().first() != failure) lanes_.abort().throw_if_set();
  std::rethrow_exception(failure);
}

void NcclRank::wait(const std::function<bool()>& done) {
  for (int polls = 0; !done(); ++polls) {
    check();
    if (polls < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void NcclRank::abort_all() noexcept {
  if (std::exchange(aborted_, true)) return;
  const AbortGuard guard(deadlines_.abort,
                         fmt::format("rank {}: ncclCommAbort has not returned after {} s{}; this process ends now.",
                                     rank_, std::chrono::duration<double>(deadlines_.abort).count(), unfinished()),
                         deadlines_.give_up);
  // In the order they were made in: the end of a parent's split, which may be under way, comes before its child's.
  for (const auto& comm : comms_) comm->abort();
}

std::string NcclRank::unfinished() const {
  std::string text;
  for (const auto& comm : comms_) {
    if (const std::string op = comm->oldest_op(); !op.empty()) text += (text.empty() ? "; not finished: " : ", ") + op;
  }
  return text;
}

}  // namespace fsdpbench::backend::cuda
