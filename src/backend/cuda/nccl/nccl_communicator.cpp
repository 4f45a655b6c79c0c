#include "backend/cuda/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/nccl/nccl_version.h"
#include "backend/kernels.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

ncclUniqueId make_id(int rank) {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) {
    throw BackendError(fmt::format("rank {}: ncclGetUniqueId failed: {}", rank, nccl_words(result, nullptr)));
  }
  return id;
}

/// Sends to `peers` ranks, of which `to` is the first, and receives from as many, of which `from` is the first; all in
/// one group, so that they go at once. If buffers have `parts`, part r goes to rank r, or comes from it.
struct Exchange {
  int to = 0, from = 0, peers = 1;
  bool parts = false;
};

ncclResult_t send_and_receive(const CollectiveCall& call, Exchange exchange, ncclComm_t comm, cudaStream_t stream) {
  if (call.count == 0) return ncclSuccess;
  const std::int64_t slice = exchange.parts ? call.count * size_of(call.dtype) : 0;
  const std::size_t elements = call.count;
  const ncclDataType_t type = nccl_type(call.dtype);
  const auto refused = [](ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; };
  ncclResult_t result = ncclGroupStart();
  for (int peer = 0; peer < exchange.peers && !refused(result); ++peer) {
    const int to = exchange.to + peer, from = exchange.from + peer;
    result = ncclSend(call.input + to * slice, elements, type, to, comm, stream);
    if (refused(result)) break;
    result = ncclRecv(call.output + from * slice, elements, type, from, comm, stream);
  }
  const ncclResult_t ended = ncclGroupEnd();
  return refused(result) ? result : ended;
}

/// Exchanges that NCCL has no call for, or only newer ones have: ncclAlltoAll does the same.
Exchange exchange_of(Collective kind, int rank, int size) {
  if (kind == Collective::all_to_all) return {.peers = size, .parts = true};
  return {.to = (rank + 1) % size, .from = (rank + size - 1) % size};
}

// Nothing of a cluster's addresses or users.
constexpr auto kVariables = std::to_array<const char*>({
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MODULE_LOADING",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_CGA_CLUSTER_SIZE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_COMM_BLOCKING",
    "NCCL_CONF_FILE",
    "NCCL_CROSS_NIC",
    "NCCL_CTA_POLICY",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_DMABUF_ENABLE",
    "NCCL_GRAPH_FILE",
    "NCCL_GRAPH_REGISTER",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_IB_MERGE_NICS",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_TC",
    "NCCL_LAUNCH_MODE",
    "NCCL_LOCAL_REGISTER",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MNNVL_ENABLE",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_NET",
    "NCCL_NET_GDR_C2C",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_PLUGIN",
    "NCCL_NTHREADS",
    "NCCL_NVLS_CHUNKSIZE",
    "NCCL_NVLS_ENABLE",
    "NCCL_NVLS_NCHANNELS",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_USE_CUDA_MEMCPY",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_PROTO",
    "NCCL_PXN_DISABLE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_TOPO_FILE",
    "NCCL_TUNER_CONFIG_FILE",
    "NCCL_TUNER_PLUGIN",
    "NCCL_WIN_ENABLE",
});

std::string wishes(const NcclOptions& options) {
  std::vector<std::string> all;
  if (options.registration == NcclOptions::Register::local) all.emplace_back("register_buffers local");
  if (options.registration == NcclOptions::Register::window) all.emplace_back("register_buffers window");
  if (options.cta_policy == NcclOptions::CtaPolicy::efficiency) all.emplace_back("cta_policy efficiency");
  if (options.cta_policy == NcclOptions::CtaPolicy::zero) all.emplace_back("cta_policy zero");
  if (options.blocking) all.emplace_back("blocking");
  if (options.max_ctas > 0) all.push_back(fmt::format("max_ctas {}", options.max_ctas));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

ncclUniqueId exchange_nccl_id(IdExchange& ids, int rank) {
  const char* const address = std::getenv("NCCL_COMM_ID");
  if (address != nullptr && *address != '\0') return make_id(rank);
  std::string bytes;
  if (rank == 0) {
    const ncclUniqueId mine = make_id(rank);
    bytes.assign(mine.internal, sizeof mine.internal);
  }
  bytes = ids.from_root(rank, std::move(bytes));
  ncclUniqueId id;
  if (bytes.size() != sizeof id.internal) {
    throw BackendError(fmt::format("rank {}: NCCL's id has {} bytes, and {} arrived from rank 0", rank,
                                   sizeof id.internal, bytes.size()));
  }
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

void SoloCommunicator::enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) {
  check_root(call, 1);
  if (call.scale != 1.0F && call.dtype != DType::f32 && call.dtype != DType::bf16) {
    throw std::logic_error("Communicator: only sums of fp32 and bf16 are scaled");
  }
  const auto work = [&](cudaStream_t stream) {
    if (call.count == 0) return;
    if (call.scale != 1.0F) {
      lanes_.kernels(lane).cast({call.input, call.dtype}, {call.output, call.dtype}, call.count, call.scale);
    } else if (call.input != call.output) {
      const std::size_t bytes = call.count * size_of(call.dtype);
      check(cudaMemcpyAsync(call.output, call.input, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    }
  };
  lanes_.run_op(lane, to_string(call.kind).data(), work, stamp);
}

std::unique_ptr<Communicator> SoloCommunicator::split(int /*color*/, int /*key*/) {
  return std::make_unique<SoloCommunicator>(lanes_);
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclRank> rank, NcclComm& comm, IdExchange* ids)
    : rank_(std::move(rank)), comm_(comm), ids_(ids) {}

NcclCommunicator::~NcclCommunicator() {
  // While an exception is on its way the others do not come here: what is left is aborted with NcclRank.
  if (std::uncaught_exceptions() == exceptions_at_birth_) rank_->close(comm_);
}

void NcclCommunicator::enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) {
  check_root(call, size());
  const std::size_t count = call.count;
  const ncclDataType_t type = nccl_type(call.dtype);
  NcclComm::Launch launch;
  switch (call.kind) {
    case Collective::all_gather:
      launch = [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllGather(call.input, call.output, count, type, comm, stream);
      };
      break;
    case Collective::reduce_scatter:
      launch = [&, op = comm_.reduction(call.dtype, call.scale)](ncclComm_t comm, cudaStream_t stream) {
        return ncclReduceScatter(call.input, call.output, count, type, op, comm, stream);
      };
      break;
    case Collective::all_reduce:
      launch = [&, op = comm_.reduction(call.dtype, call.scale)](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllReduce(call.input, call.output, count, type, op, comm, stream);
      };
      break;
    case Collective::broadcast:
      launch = [&](ncclComm_t comm, cudaStream_t stream) {
        return ncclBroadcast(call.input, call.output, count, type, call.root, comm, stream);
      };
      break;
    case Collective::all_to_all:
    case Collective::send_recv:
      launch = [&, exchange = exchange_of(call.kind, rank(), size())](ncclComm_t comm, cudaStream_t stream) {
        return send_and_receive(call, exchange, comm, stream);
      };
      break;
  }
  comm_.run(call.kind, lane, launch, stamp);
  wire_bytes_[static_cast<std::size_t>(call.kind)] += ring_bytes(call.kind, call.count * size_of(call.dtype), size());
}

void NcclCommunicator::barrier() {
  rank_->stop_if_aborted();
  if (ids_ != nullptr) {
    ids_->barrier(rank());
  } else {
    comm_.barrier();
  }
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  rank_->stop_if_aborted();
  NcclComm& part = rank_->split(comm_, color, key);
  if (part.size() > 1) return std::make_unique<NcclCommunicator>(rank_, part, nullptr);
  rank_->close(part);
  return std::make_unique<SoloCommunicator>(rank_->lanes());
}

std::unique_ptr<Communicator> make_nccl_communicator(LaneAccess& lanes, IdExchange& ids, int rank, int ranks,
                                                     const NcclOptions& options, NcclDeadlines deadlines) {
  require_nccl(options);
  const ncclUniqueId id = exchange_nccl_id(ids, rank);
  auto nccl_rank = std::make_shared<NcclRank>(lanes, rank, options, std::move(deadlines));
  NcclComm& world = nccl_rank->init(ranks, id);
  return std::make_unique<NcclCommunicator>(std::move(nccl_rank), world, &ids);
}

std::string nccl_environment() {
  std::string all;
  for (const char* const name : kVariables) {
    const char* const value = std::getenv(name);
    if (value == nullptr) continue;
    if (!all.empty()) all += ' ';
    all += name;
    all += '=';
    all += value;
  }
  return all;
}

std::unique_ptr<Communicator> make_world_communicator(LaneAccess& lanes, IdExchange& ids, int rank, int ranks,
                                                      const NcclOptions& options) {
  if (ranks == 1) return std::make_unique<SoloCommunicator>(lanes);
  NcclDeadlines deadlines;
  deadlines.op = std::chrono::duration<double>(options.timeout_s);
  return make_nccl_communicator(lanes, ids, rank, ranks, options, deadlines);
}

Facts communicator_facts(const Communicator& world) {
  const auto* const nccl = dynamic_cast<const NcclCommunicator*>(&world);
  if (nccl == nullptr) return {{"nccl", "not used: one rank"}};
  const NcclRank& rank = nccl->nccl_rank();
  Facts facts{{"nccl", nccl_version()}};
  if (std::string asked = wishes(rank.options()); !asked.empty()) facts.emplace_back("nccl asked for", asked);
  if (std::string set = nccl_environment(); !set.empty()) facts.emplace_back("nccl environment", set);
  if (rank.windows_asked > 0) {
    facts.emplace_back("nccl windows",
                       fmt::format("accepted on {} of {} communicators; without symmetric memory they only are "
                                   "registered buffers, which NCCL does not tell",
                                   rank.windows_made, rank.windows_asked));
  }
  if (const LaunchTimes& times = rank.launches; times.count > 0) {
    using Microseconds = std::chrono::duration<double, std::micro>;
    facts.emplace_back("nccl launches",
                       fmt::format("{} collectives took {:.0f} us of the host each, at most {:.0f} us", times.count,
                                   Microseconds(times.all).count() / static_cast<double>(times.count),
                                   Microseconds(times.longest).count()));
  }
  return facts;
}

}  // namespace fsdpbench::backend::cuda
