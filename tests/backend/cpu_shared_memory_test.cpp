// Memory that processes of one host share: ranges, the table where they meet, and, in processes of their own, whole
// collectives, without it where it cannot be, and with a peer that dies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/mapped_memory.h"
#include "backend/cpu/seat.h"
#include "backend/cpu_processes.h"
#include "backend/support.h"
#include "launch/processes.h"

namespace fsdpbench::backend {
namespace {

using cpu::MappedMemory;
using cpu::RoundTable;
using cpu::Seat;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kRange_bytes = 1 << 20;

TEST(SharedRange, IsTheSameMemoryAtTwoPlacesAndOutlivesItsMaker) {
  std::string why_not;
  std::unique_ptr<MappedMemory> mine = MappedMemory::make_shared(kRange_bytes, why_not);
  ASSERT_TRUE(mine) << why_not;
  const std::unique_ptr<MappedMemory> theirs = MappedMemory::open_shared(mine->shared_name(), why_not);
  ASSERT_TRUE(theirs) << why_not;
  EXPECT_NE(mine->data(), theirs->data());
  mine->data()[kRange_bytes - 1] = std::byte{7};
  EXPECT_EQ(theirs->data()[kRange_bytes - 1], std::byte{7});
  mine.reset();
  EXPECT_EQ(theirs->data()[kRange_bytes - 1], std::byte{7});
}

TEST(SharedRange, AnotherFileWithItsDescriptorIsNotTakenForIt) {
  std::string why_not;
  const auto one = MappedMemory::make_shared(kRange_bytes, why_not);
  const auto other = MappedMemory::make_shared(kRange_bytes, why_not);
  ASSERT_TRUE(one && other) << why_not;
  cpu::SharedName name = one->shared_name();
  name.file = other->shared_name().file;  // as a process of another container may have that number
  EXPECT_FALSE(MappedMemory::open_shared(name, why_not));
  EXPECT_THAT(why_not, ContainsRegex("^/proc/[0-9]+/fd/[0-9]+ is something else$"));
  name.file = 1 << 20;
  EXPECT_FALSE(MappedMemory::open_shared(name, why_not));
  EXPECT_THAT(why_not, StartsWith("cannot open /proc/"));
}

/// Each member says its number and the round, in many rounds, and must hear everybody's.
TEST(RoundTable, EverybodyHearsAllInEachRound) {
  constexpr int kMembers = 3;
  constexpr int kRounds = 2000;
  std::array<Seat, kMembers> seats;
  launch::run_ranks(kMembers, [&](int rank) {
    RoundTable table({&seats[0], &seats[1], &seats[2]}, rank);
    for (int round = 0; round < kRounds; ++round) {
      const std::array<int, 2> mine{rank, round};
      std::array<std::array<int, 2>, kMembers> all{};
      table.say(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(&all), sizeof mine,
                [] { return false; });
      for (int member = 0; member < kMembers; ++member) {
        ASSERT_EQ(all[static_cast<std::size_t>(member)], (std::array{member, round}));
      }
      if (round % 3 == 0) table.meet([] { return false; });
    }
  });
}

TEST(RoundTable, WhoIsStoppedHasHeardThoseWhoCame) {
  std::array<Seat, 3> seats;
  const auto say = [&](int rank, std::array<char, 3>& all, const std::function<bool()>& stopped) {
    RoundTable table({&seats[0], &seats[1], &seats[2]}, rank);
    const char mine = static_cast<char>('a' + rank);
    table.say(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(all.data()), 1, stopped);
  };
  std::array<char, 3> first{'-', '-', '-'}, second = first;
  EXPECT_THROW(say(0, first, [] { return true; }), launch::Stopped);
  EXPECT_THROW(say(2, second, [] { return true; }), launch::Stopped);
  EXPECT_EQ(first, (std::array{'a', '-', '-'}));
  EXPECT_EQ(second, (std::array{'a', '-', 'c'}));
}

/// Runs `body` in processes of their own and returns what each of them returned or threw.
std::vector<launch::testing::Outcome> in_processes(int ranks,
                                                   const std::function<std::string(launch::Session&)>& body) {
  std::string error;
  launch::Socket listener = launch::listen_at("127.0.0.1", 0, error);
  if (!listener) throw BackendError(error);
  const int port = listener.local_port();
  const std::string secret = launch::random_token();
  return launch::testing::run_processes(ranks, [&](int rank) {
    const auto session = join_session(rank, ranks, port, secret, listener);
    const std::string text = body(*session);
    return ::testing::Test::HasFailure() ? "an expectation of rank " + std::to_string(rank) + " failed" : text;
  });
}

BackendOptions options_of(launch::Session& session) {
  BackendOptions options;
  options.ranks = session.placement().ranks;
  options.session = &session;
  return options;
}

/// All collectives with whatever number of elements, and how their bytes went.
std::string checked_collectives(const BackendOptions& options) {
  std::string how;
  make_copy_backend()->run(options, [&](RankContext& rank) {
    for (const std::int64_t count : {0, 1, 1000, 100'003}) {
      check_collectives<float>(rank, count);
      check_collectives<std::uint16_t>(rank, count);
    }
    const auto pair = rank.world.split(rank.rank / 2, -rank.rank);
    RankContext in_pair{pair->rank(), rank.device, *pair};
    check_collectives<float>(in_pair, 77);
    for (const auto& [name, value] : rank.device.facts()) how = name + " " + value;
  });
  return how;
}

TEST(ProcessesOfOneHost, MoveBytesThroughSharedMemory) {
  for (const auto& outcome :
       in_processes(3, [](launch::Session& session) { return checked_collectives(options_of(session)); })) {
    EXPECT_EQ(outcome.text, "collectives through shared memory");
  }
}

TEST(ProcessesOfOneHost, ExchangeMessagesWhereOneMayNotShareAndSaySo) {
  const auto outcomes = in_processes(3, [](launch::Session& session) {
    BackendOptions options = options_of(session);
    options.set<CpuOptions>().share_memory = session.placement().rank != 1;
    return checked_collectives(options);
  });
  EXPECT_EQ(outcomes[0].text,
            "collectives by messages over TCP sockets: rank 0 does not see the memory of rank 1: it shares none");
  EXPECT_EQ(outcomes[1].text, "collectives by messages over TCP sockets: FSDPBENCH_SHARE_MEMORY is 0");
  EXPECT_THAT(outcomes[2].text, HasSubstr("does not see the memory of rank 1"));
}

TEST(ProcessesOfOneHost, ExchangeMessagesWhereFilesMayNotBeLarge) {
  const auto outcomes = in_processes(2, [](launch::Session& session) {
    const rlimit least{kRange_bytes, kRange_bytes};
    if (setrlimit(RLIMIT_FSIZE, &least) != 0) return std::string("cannot be limited");
    return checked_collectives(options_of(session));
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.signal, 0);
    EXPECT_EQ(outcome.text,
              "collectives by messages over TCP sockets: files may not be larger than 1.00 MiB here (ulimit -f)");
  }
}

TEST(ProcessesOfOneHost, BuffersThatAreNoDeviceMemoryGoByMessages) {
  const auto outcomes = in_processes(2, [](launch::Session& session) {
    make_copy_backend()->run(options_of(session), [](RankContext& rank) {
      std::vector<float> elsewhere = values_of<float>(rank.rank, 0, 100);
      std::byte* const full = reserve<float>(rank.device, 200);
      const auto* const own = reinterpret_cast<const std::byte*>(elsewhere.data());
      rank.world.all_gather(Lane::copy, rank.rank == 0 ? own : put(rank.device, elsewhere), full, 100, DType::f32,
                            nullptr);
      std::vector<float> both = values_of<float>(0, 0, 100);
      const std::vector<float> second = values_of<float>(1, 0, 100);
      both.insert(both.end(), second.begin(), second.end());
      EXPECT_EQ(get<float>(rank.device, full, 200), both);
    });
    return std::string("fine");
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.text, "fine");
}

/// Rank 2 is killed while the others are in collectives with it, one after the other.
TEST(ProcessesOfOneHost, APeerThatIsKilledEndsTheOthersWithItsName) {
  const auto outcomes = in_processes(3, [](launch::Session& session) {
    make_copy_backend()->run(options_of(session), [](RankContext& rank) {
      constexpr std::int64_t kCount = 100'000;
      std::byte* const shard = reserve<float>(rank.device, kCount);
      std::byte* const full = reserve<float>(rank.device, 3 * kCount);
      for (int call = 0; call < 200; ++call) {
        if (rank.rank == 2 && call == 100) {
          rank.device.enqueue(
              Lane::all_gather, "kill", [](Kernels&) { std::raise(SIGKILL); }, nullptr);
        }
        rank.world.all_gather(Lane::all_gather, shard, full, kCount, DType::f32, nullptr);
      }
      rank.device.synchronize();
    });
    return std::string("it ended as if nothing had been");
  });
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].signal, 0);
    EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)].text, HasSubstr("rank 2"));
  }
}

}  // namespace
}  // namespace fsdpbench::backend
