#include "launch/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "launch/local_job.h"

namespace fsdpbench::launch {
namespace {

using ::testing::HasSubstr;
using testing::run_job;

const std::function<bool()> kNeverStopped = [] { return false; };

TEST(TcpSession, MessagesArriveInOrderByTopic) {
  run_job(3, [](Session& session, int rank) {
    ControlChannel& control = session.control();
    EXPECT_EQ(control.rank(), rank);
    EXPECT_EQ(control.size(), 3);
    constexpr int kMany = 100;
    if (rank == 0) {
      for (int from : {2, 1}) {
        for (int i = kMany - 1; i >= 0; --i) EXPECT_EQ(control.receive(from, "b"), std::to_string(i));
        for (int i = 0; i < kMany; ++i) EXPECT_EQ(control.receive(from, "a"), std::to_string(from * 1000 + i));
        control.send(from, "done", "");
      }
      EXPECT_FALSE(control.poll(1, "a"));
    } else {
      for (int i = 0; i < kMany; ++i) {
        control.send(0, "a", std::to_string(rank * 1000 + i));
        control.send(0, "b", std::to_string(kMany - 1 - i));
      }
      EXPECT_EQ(control.receive(0, "done"), "");
    }
  });
}

TEST(TcpSession, CollectivesOfTheControlChannel) {
  run_job(4, [](Session& session, int rank) {
    ControlChannel& control = session.control();
    const std::string big(5'000'000, static_cast<char>('a' + rank));
    const std::vector<std::string> all = gather(control, "g", big);
    if (rank == 0) {
      ASSERT_EQ(all.size(), 4U);
      for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(all[r], std::string(5'000'000, static_cast<char>('a' + r)));
    } else {
      EXPECT_TRUE(all.empty());
    }
    EXPECT_EQ(broadcast(control, "x", rank == 0 ? "from zero" : "not this"), "from zero");
    barrier(control);
  });
}

TEST(TcpSession, ABarrierHoldsAllBack) {
  std::atomic<int> arrived{0};
  run_job(3, [&](Session& session, int rank) {
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++arrived;
    barrier(session.control());
    EXPECT_EQ(arrived, 3);
  });
}

TEST(TcpSession, PeersExchangeMoreThanTheSocketsHoldBothWaysAtOnce) {
  run_job(4, [](Session& session, int rank) {
    const auto group = session.peers();
    ASSERT_EQ(group->rank(), rank);
    ASSERT_EQ(group->size(), 4);
    constexpr std::size_t kCount = std::size_t{1} << 20;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<std::int64_t>> out(4);
      std::vector<std::vector<std::int64_t>> in(4);
      std::vector<PeerGroup::Send> sends;
      std::vector<PeerGroup::Receive> receives;
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank) continue;
        const auto p = static_cast<std::size_t>(peer);
        out[p].assign(kCount, 100 * rank + peer + round);
        in[p].assign(kCount, -1);
        sends.push_back({peer, std::as_bytes(std::span(out[p]))});
        receives.push_back({peer, std::as_writable_bytes(std::span(in[p]))});
      }
      group->exchange(sends, receives, kNeverStopped);
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank) continue;
        const std::vector<std::int64_t> wanted(kCount, 100 * peer + rank + round);
        EXPECT_EQ(in[static_cast<std::size_t>(peer)], wanted);
      }
    }
  });
}

TEST(TcpSession, EmptyMessagesAndOneWayTraffic) {
  run_job(2, [](Session& session, int rank) {
    const auto group = session.peers();
    std::byte byte{static_cast<unsigned char>(rank)};
    const PeerGroup::Send empty{1 - rank, {}};
    const PeerGroup::Receive nothing{1 - rank, {}};
    group->exchange({&empty, 1}, {&nothing, 1}, kNeverStopped);
    const PeerGroup::Send send{1, {&byte, 1}};
    const PeerGroup::Receive receive{0, {&byte, 1}};
    if (rank == 0) group->exchange({&send, 1}, {}, kNeverStopped);
    if (rank == 1) group->exchange({}, {&receive, 1}, kNeverStopped);
    EXPECT_EQ(byte, std::byte{0});
    group->exchange({}, {}, kNeverStopped);
  });
}

TEST(TcpSession, SizesThatDoNotMatchAreAnError) {
  run_job(2, [](Session& session, int rank) {
    const auto group = session.peers();
    std::vector<std::byte> bytes(10);
    if (rank == 0) {
      const PeerGroup::Send send{1, std::span(bytes).first(4)};
      group->exchange({&send, 1}, {}, kNeverStopped);
      barrier(session.control());
      return;
    }
    const PeerGroup::Receive receive{0, bytes};
    try {
      group->exchange({}, {&receive, 1}, kNeverStopped);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const BackendError& e) {
      EXPECT_THAT(e.what(), HasSubstr("sends 4 bytes where rank 1"));
      EXPECT_THAT(e.what(), HasSubstr("expects 10"));
    }
    barrier(session.control());
  });
}

TEST(TcpSession, SplitsByColorAndOrdersByKey) {
  run_job(6, [](Session& session, int rank) {
    const auto all = session.peers();
    const auto halves = all->split(rank % 2, -rank, kNeverStopped);
    ASSERT_EQ(halves->size(), 3);
    EXPECT_EQ(halves->rank(), 2 - rank / 2);
    const auto alone = halves->split(halves->rank(), 0, kNeverStopped);
    EXPECT_EQ(alone->size(), 1);
    // To the next in the ring of the half, and so from the one before.
    const int here = halves->rank();
    int got = -1;
    const PeerGroup::Send send{(here + 1) % 3, std::as_bytes(std::span(&rank, 1))};
    const PeerGroup::Receive receive{(here + 2) % 3, std::as_writable_bytes(std::span(&got, 1))};
    halves->exchange({&send, 1}, {&receive, 1}, kNeverStopped);
    EXPECT_EQ(got, (rank + 2) % 6);
  });
}

TEST(TcpSession, TwoGroupsSplitAtTheSameTime) {
  run_job(3, [](Session& session, int rank) {
    const auto a = session.peers();
    const auto b = session.peers();
    const auto use = [rank](PeerGroup& parent, int salt) {
      for (int i = 0; i < 10; ++i) {
        const auto group = parent.split(0, 0, kNeverStopped);
        const int mine = salt + rank;
        int got = -1;
        const PeerGroup::Send send{(rank + 1) % 3, std::as_bytes(std::span(&mine, 1))};
        const PeerGroup::Receive receive{(rank + 2) % 3, std::as_writable_bytes(std::span(&got, 1))};
        group->exchange({&send, 1}, {&receive, 1}, kNeverStopped);
        EXPECT_EQ(got, salt + (rank + 2) % 3);
      }
    };
    std::jthread other([&] { use(*b, 1000); });
    use(*a, 2000);
  });
}

TEST(TcpSession, AnExchangeStopsWhenAsked) {
  run_job(2, [](Session& session, int rank) {
    const auto group = session.peers();
    if (rank == 1) {
      std::byte byte{};
      const PeerGroup::Receive receive{0, {&byte, 1}};
      int asked = 0;
      EXPECT_THROW(group->exchange({}, {&receive, 1}, [&] { return ++asked > 3; }), Stopped);
      EXPECT_EQ(asked, 4);
    }
    barrier(session.control());
  });
}

}  // namespace
}  // namespace fsdpbench::launch
