// A host of NCCL's profiler interface: events in the order and with the handles with which NCCL has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <thread>
#include <vector>

#include "backend/cuda/nccl/collective_profile.h"
#include "backend/cuda/nccl/profiler_interface.h"

namespace fsdpbench::backend::cuda {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// The description of a collective and of a proxy's work, as both versions of NCCL's interface lay them out.
static_assert(offsetof(ProfilerEvent, parent) == 8 && offsetof(ProfilerEvent, rank) == 16);
static_assert(offsetof(ProfilerEvent, collective) == 24 && sizeof(ProfilerEvent) == 24 + 88);
static_assert(offsetof(ProfilerEvent, collective.count) == 24 + 32 &&
              offsetof(ProfilerEvent, collective.dtype) == 24 + 48);
static_assert(offsetof(ProfilerEvent, collective.channels) == 24 + 56);
static_assert(offsetof(ProfilerEvent, collective.algorithm) == 24 + 64);
static_assert(offsetof(ProfilerEvent, proxy_op.process) == 24 && offsetof(ProfilerEvent, proxy_op.is_send) == 24 + 20);

/// One communicator, as NCCL has it for a profiler.
class Host {
 public:
  explicit Host(const Profiler& profiler, int ranks = 8) : profiler_(profiler) {
    EXPECT_EQ(profiler_.init(&context_, 0x1234, &events_, nullptr, 2, ranks, 0, nullptr), ncclSuccess);
  }
  ~Host() { EXPECT_EQ(profiler_.finalize(context_), ncclSuccess); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  unsigned events() const { return static_cast<unsigned>(events_); }

  void* start(ProfilerEvent event) {
    void* handle = this;  // NCCL does not clear it before
    EXPECT_EQ(profiler_.start(context_, &handle, &event), ncclSuccess);
    return handle;
  }
  /// The collective is planned; NCCL stops it at once, long before its transfers begin.
  void* collective(const char* function, std::size_t count, const char* dtype, const char* algorithm = "RING") {
    ProfilerEvent event{};
    event.type = kProfileCollective;
    event.collective.function = function;
    event.collective.count = count;
    event.collective.dtype = dtype;
    event.collective.channels = 16;
    event.collective.algorithm = algorithm;
    event.collective.protocol = "SIMPLE";
    void* const handle = start(event);
    if (handle != nullptr) stop(handle);
    return handle;
  }
  void* proxy_op(void* collective, pid_t process = getpid()) {
    ProfilerEvent event{};
    event.type = kProfileProxyOp;
    event.parent = collective;
    event.proxy_op.process = process;
    return start(event);
  }
  void* step(void* op) {
    ProfilerEvent event{};
    event.type = kProfileProxyStep;
    event.parent = op;
    return start(event);
  }
  void state(void* handle, ProxyState state) {
    EXPECT_EQ(profiler_.state(handle, static_cast<int>(state), nullptr), ncclSuccess);
  }
  void stop(void* handle) { EXPECT_EQ(profiler_.stop(handle), ncclSuccess); }

 private:
  const Profiler& profiler_;
  void* context_ = nullptr;
  int events_ = 0;
};

ProfiledCollective profiled(const std::string& name, std::int64_t bytes) {
  for (const ProfiledCollective& c : collective_profile().collectives()) {
    if (c.name == name && c.bytes == bytes) return c;
  }
  ADD_FAILURE() << name << " of " << bytes << " bytes is not there";
  return {};
}

TEST(NcclProfile, BothVersionsAreTheSameAndAskForFewEvents) {
  for (const Profiler* profiler : {&ncclProfiler_v5, &ncclProfiler_v6}) {
    EXPECT_STREQ(profiler->name, "fsdpbench");
    const Host host(*profiler);
    EXPECT_EQ(host.events(), kProfileCollective | kProfileProxyOp | kProfileProxyStep);
  }
}

TEST(NcclProfile, ACollectiveHasItsAlgorithmProtocolAndChannels) {
  Host host(ncclProfiler_v5);
  // NCCL moves all-gather as bytes, whatever its type was.
  for (int i = 0; i < 3; ++i) host.collective("AllGather", 1 << 20, "ncclInt8");
  host.collective("ReduceScatter", 1 << 18, "ncclBfloat16", "NVLS");
  const ProfiledCollective gather = profiled("all_gather", 8 << 20);
  EXPECT_EQ(gather.count, 3);
  EXPECT_EQ(gather.ranks, 8);
  EXPECT_EQ(gather.algorithm, "RING");
  EXPECT_EQ(gather.protocol, "SIMPLE");
  EXPECT_EQ(gather.channels, 16);
  EXPECT_EQ(gather.transfers, 0);
  EXPECT_EQ(profiled("reduce_scatter", 8 * 2 * (1 << 18)).algorithm, "NVLS");
}

TEST(NcclProfile, WaitingForThePeerIsWhatPassesInThoseStatesOnly) {
  CollectiveProfile profile;
  const CollectiveProfile::Group group{4};
  CollectiveProfile::Kind* const kind = profile.collective(group, "AllReduce", 1024, "ncclFloat32", 8, "TREE", "LL128");
  void* const send = profile.begin_transfer(kind);
  CollectiveProfile::enter(send, static_cast<int>(ProxyState::send_gpu_wait), 100);
  CollectiveProfile::enter(send, static_cast<int>(ProxyState::send_peer_wait), 150);
  CollectiveProfile::enter(send, static_cast<int>(ProxyState::send_wait), 450);
  profile.end_transfer(send, 1000);
  void* const receive = profile.begin_transfer(kind);
  CollectiveProfile::enter(receive, static_cast<int>(ProxyState::recv_wait), 2000);
  CollectiveProfile::enter(receive, static_cast<int>(ProxyState::recv_flush_wait), 2007);
  CollectiveProfile::enter(receive, static_cast<int>(ProxyState::recv_gpu_wait), 3000);
  profile.end_transfer(receive, 4000);
  void* const cut_short = profile.begin_transfer(kind);
  CollectiveProfile::enter(cut_short, static_cast<int>(ProxyState::recv_wait), 5000);
  profile.end_transfer(cut_short, 5020);
  const std::vector<ProfiledCollective> all = profile.collectives();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].name, "all_reduce");
  EXPECT_EQ(all[0].bytes, 4096);
  EXPECT_EQ(all[0].transfers, 3);
  EXPECT_EQ(all[0].peer_wait_ns, 300 + 7 + 20);
}

TEST(NcclProfile, TransfersComeAfterTheirCollectiveWasStopped) {
  Host host(ncclProfiler_v6, 2);
  void* const collective = host.collective("AllGather", 4096, "ncclInt8");
  ASSERT_NE(collective, nullptr);
  void* const op = host.proxy_op(collective);
  ASSERT_NE(op, nullptr);
  void* const step = host.step(op);
  ASSERT_NE(step, nullptr);
  host.state(op, static_cast<ProxyState>(19));  // the op is in progress
  host.state(step, ProxyState::recv_wait);
  host.stop(step);
  host.stop(op);
  EXPECT_EQ(profiled("all_gather", 8192).transfers, 1);
}

TEST(NcclProfile, OfAnotherProcessNothingIsRead) {
  Host host(ncclProfiler_v5, 2);
  void* const far = reinterpret_cast<void*>(std::uintptr_t{0xdead000});  // an address of that process
  EXPECT_EQ(host.proxy_op(far, getpid() + 1), nullptr);
  EXPECT_EQ(host.step(nullptr), nullptr);
}

TEST(NcclProfile, EventsThatNobodyAskedForHaveNoHandle) {
  Host host(ncclProfiler_v6);
  for (const std::uint64_t type : {1U << 0U, 1U << 2U, 1U << 8U, 1U << 9U, 1U << 12U}) {
    ProfilerEvent event{};
    event.type = type;
    EXPECT_EQ(host.start(event), nullptr) << type;
  }
}

TEST(NcclProfile, MemoryIsFixed) {
  CollectiveProfile profile;
  const CollectiveProfile::Group group{2};
  for (std::size_t i = 0; i < CollectiveProfile::kMostKinds + 5; ++i) {
    CollectiveProfile::Kind* const kind = profile.collective(group, "AllGather", i, "ncclInt8", 1, "RING", "LL");
    EXPECT_EQ(kind == nullptr, i >= CollectiveProfile::kMostKinds);
  }
  CollectiveProfile::Kind* const kind = profile.collective(group, "AllGather", 0, "ncclInt8", 1, "RING", "LL");
  std::vector<void*> transfers;
  for (std::size_t i = 0; i < CollectiveProfile::kMostTransfers; ++i) transfers.push_back(profile.begin_transfer(kind));
  EXPECT_EQ(profile.begin_transfer(kind), nullptr);
  EXPECT_EQ(profile.left_out(), 6);
  profile.end_transfer(transfers.back(), 1);
  EXPECT_NE(profile.begin_transfer(kind), nullptr);
}

TEST(NcclProfile, RanksThatAreThreadsShareIt) {
  CollectiveProfile profile;
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const CollectiveProfile::Group group{8};
      for (int i = 0; i < kEach; ++i) {
        CollectiveProfile::Kind* const kind =
            profile.collective(group, "AllGather", static_cast<std::size_t>(i % 10), "ncclInt8", 4, "RING", "LL");
        void* const transfer = profile.begin_transfer(kind);
        CollectiveProfile::enter(transfer, static_cast<int>(ProxyState::recv_wait), 10);
        profile.end_transfer(transfer, 13);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<ProfiledCollective> all = profile.collectives();
  ASSERT_THAT(all, SizeIs(10));
  std::int64_t count = 0;
  std::int64_t waited_ns = 0;
  for (const ProfiledCollective& c : all) {
    count += c.count;
    waited_ns += c.peer_wait_ns;
  }
  EXPECT_EQ(count, kThreads * kEach);
  EXPECT_EQ(waited_ns, 3 * count);
}

TEST(NcclProfile, UnlessAskedForItSaysNothing) { EXPECT_THAT(profile_facts(), IsEmpty()); }

}  // namespace
}  // namespace fsdpbench::backend::cuda
