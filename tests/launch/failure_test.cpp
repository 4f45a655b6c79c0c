// News that the ranks of a job get when one of them fails or dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <future>
#include <thread>

#include "launch/control_channel.h"
#include "launch/local_job.h"
#include "launch/processes.h"

namespace fsdpbench::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using testing::free_port;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::place;
using testing::run_job;
using testing::run_processes;

std::string wait_for_failure(ControlChannel& control) {
  std::promise<std::string> told;
  control.on_failure([&](const JobFailure& failure) {
    told.set_value(std::to_string(failure.rank) + (failure.died ? " died: " : " failed: ") + failure.message);
  });
  const std::string text = told.get_future().get();
  control.on_failure({});
  return text;
}

TEST(Failure, AKilledRankIsKnownToAll) {
  const int port = free_port();
  const std::vector<Outcome> outcomes = run_processes(4, [port](int rank) -> std::string {
    const auto session = join(place(rank, 4, port));
    barrier(session->control());
    if (rank == 2) raise(SIGKILL);
    return wait_for_failure(session->control());
  });
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)].text,
                ContainsRegex("^2 died: rank 2 \\(host [^ ]+, pid [0-9]+\\) has ended without a word: it was killed or "
                              "has crashed$"));
  }
}

TEST(Failure, AKilledRankZeroIsKnownToAll) {
  const int port = free_port();
  const std::vector<Outcome> outcomes = run_processes(3, [port](int rank) -> std::string {
    const auto session = join(place(rank, 3, port));
    barrier(session->control());
    if (rank == 0) raise(SIGKILL);
    return session->control().receive(0, "never sent");
  });
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
  EXPECT_THAT(outcomes[1].text, ContainsRegex("^rank 0 \\(host .*\\) has ended without a word"));
  EXPECT_THAT(outcomes[2].text, ContainsRegex("^rank 0 \\(host .*\\) has ended without a word"));
}

TEST(Failure, AnExchangeWithAKilledRankThrowsTheCause) {
  const int port = free_port();
  const std::vector<Outcome> outcomes = run_processes(3, [port](int rank) -> std::string {
    const auto session = join(place(rank, 3, port));
    const auto group = session->peers();
    barrier(session->control());
    if (rank == 2) raise(SIGKILL);
    std::byte byte{};
    const PeerGroup::Receive receive{2, {&byte, 1}};
    try {
      group->exchange({}, {&receive, 1}, [] { return false; });
    } catch (const Stopped& e) {
      return std::string("stopped: ") + e.what();
    }
    return "nothing was thrown";
  });
  EXPECT_THAT(outcomes[0].text, ContainsRegex("^stopped: rank 2 \\(.*\\) has ended without a word"));
  EXPECT_THAT(outcomes[1].text, ContainsRegex("^stopped: rank 2 \\(.*\\) has ended without a word"));
}

TEST(Failure, ASilentRankCountsAsDead) {
  const int port = free_port();
  const Heartbeat fast{.interval_s = 0.05, .silence_s = 4};
  const std::vector<Outcome> outcomes = run_processes(3, [&](int rank) -> std::string {
    const Placement placement = place(rank, 3, port);
    TcpControlChannel control(rank, meet(placement, introduce(placement, {}), deadline_in(60), process_environment()),
                              fast);
    barrier(control);
    if (rank == 1) {
      control.send(0, "pid", std::to_string(getpid()));
      raise(SIGSTOP);
      return wait_for_failure(control);
    }
    std::string text = wait_for_failure(control);
    if (rank == 0) kill(std::stoi(control.receive(1, "pid")), SIGCONT);
    return text;
  });
  EXPECT_THAT(outcomes[0].text,
              ContainsRegex("^1 died: rank 1 \\(.*\\) has been silent for 4 s: its host or the network"));
  EXPECT_EQ(outcomes[2].text, outcomes[0].text);
  EXPECT_THAT(outcomes[1].text, ContainsRegex("^1 failed: rank 1 \\(.*\\) was stopped for [0-9.]+ s"));
}

TEST(Failure, ARankZeroThatWasStoppedBlamesNobodyElse) {
  const int port = free_port();
  const Heartbeat fast{.interval_s = 0.05, .silence_s = 4};
  int pipe_ends[2];  // rank 1 tells the pid of rank 0 who may go on, past all sockets
  ASSERT_EQ(pipe(pipe_ends), 0);
  const std::vector<Outcome> outcomes = run_processes(3, [&](int rank) -> std::string {
    const Placement placement = place(rank, 3, port);
    TcpControlChannel control(rank, meet(placement, introduce(placement, {}), deadline_in(60), process_environment()),
                              fast);
    barrier(control);
    if (rank == 0) {
      const pid_t self = getpid();
      (void)!write(pipe_ends[1], &self, sizeof self);
      raise(SIGSTOP);
      return wait_for_failure(control);
    }
    std::string text = wait_for_failure(control);
    if (rank == 1) {
      pid_t zero = 0;
      (void)!read(pipe_ends[0], &zero, sizeof zero);
      // Both others have given it up by now or will a moment later: it has been silent for both alike.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill(zero, SIGCONT);
    }
    return text;
  });
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_THAT(outcomes[rank].text, ContainsRegex("^0 died: rank 0 \\(.*\\) has been silent for 4 s"));
  }
  EXPECT_THAT(outcomes[0].text, ::testing::AnyOf(ContainsRegex("^0 failed: rank 0 \\(.*\\) was stopped for [0-9.]+ s"),
                                                 ContainsRegex("^0 died: rank 0 \\(.*\\) has been silent")));
}

TEST(Failure, FailTellsAllAndTheFirstOneCounts) {
  run_job(4, [](Session& session, int rank) {
    ControlChannel& control = session.control();
    barrier(control);
    if (rank == 3) {
      control.send(0, "before", "the end");
      control.fail("rank 3, lane compute: the memory is full");
      control.fail("something later");
    }
    EXPECT_EQ(wait_for_failure(control), "3 failed: rank 3, lane compute: the memory is full");
    try {
      control.receive(rank == 0 ? 1 : 0, "never sent");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Stopped& e) {
      EXPECT_STREQ(e.what(), "rank 3, lane compute: the memory is full");
    }
    if (rank == 0) {
      EXPECT_EQ(control.receive(3, "before"), "the end");
    }
    ASSERT_TRUE(control.failure());
    EXPECT_EQ(control.failure()->rank, 3);
    EXPECT_FALSE(control.failure()->died);
  });
}

TEST(Failure, AMessageThatNamesNoRankGetsOne) {
  run_job(11, [](Session& session, int rank) {
    if (rank == 1) session.control().fail("rank 10 is not this one");
    EXPECT_THAT(wait_for_failure(session.control()), ContainsRegex("^1 failed: rank 1 \\(host .*\\): rank 10 is not"));
  });
}

TEST(Failure, WhoIsBlockedInReceiveIsWoken) {
  run_job(3, [](Session& session, int rank) {
    if (rank == 0) {
      std::jthread late([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        session.control().fail("enough");
      });
      EXPECT_THROW(session.control().receive(1, "never sent"), Stopped);
    } else {
      EXPECT_THROW(session.control().receive(0, "never sent"), Stopped);
    }
  });
}

TEST(Failure, ListenersAreCalledOnceAndNotAfterTheyWereReplaced) {
  run_job(2, [](Session& session, int rank) {
    ControlChannel& control = session.control();
    std::atomic<int> replaced{0};
    control.on_failure([&](const JobFailure&) { ++replaced; });
    control.on_failure({});
    std::atomic<int> calls{0};
    control.on_failure([&](const JobFailure&) { ++calls; });
    barrier(control);
    if (rank == 0) {
      control.fail("one");
      control.fail("two");
    }
    while (calls == 0) std::this_thread::yield();
    // A listener that comes later hears of it, too.
    (void)wait_for_failure(control);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(replaced, 0);
  });
}

TEST(Failure, AReplacedListenerIsNotRunningAnyMore) {
  run_job(2, [](Session& session, int rank) {
    std::atomic<bool> entered{false};
    std::atomic<bool> left{false};
    session.control().on_failure([&](const JobFailure&) {
      entered = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      left = true;
    });
    if (rank == 1) session.control().fail("now");
    while (!entered) std::this_thread::yield();
    session.control().on_failure({});
    EXPECT_TRUE(left);
  });
}

TEST(Failure, TheOthersEndAfterRankZero) {
  std::atomic<bool> rank_zero_ends{false};
  run_job(
      3,
      [&](Session& session, int rank) {
        if (rank == 2) session.control().fail("now");
        (void)wait_for_failure(session.control());
        if (rank == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it writes its results
          rank_zero_ends = true;
        }
      },
      [&](int rank) { EXPECT_TRUE(rank == 0 || rank_zero_ends); });
}

TEST(Failure, ACleanEndIsNone) {
  const int port = free_port();
  const std::vector<Outcome> outcomes = run_processes(4, [port](int rank) -> std::string {
    {
      const auto session = join(place(rank, 4, port));
      if (rank == 0) return session->control().receive(3, "last");
      if (rank == 3) {
        // The two others end long before this one.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (session->control().failure()) return session->control().failure()->message;
        session->control().send(0, "last", "good");
      }
    }
    return "good";
  });
  std::vector<std::string> texts;
  for (const Outcome& outcome : outcomes) texts.push_back(outcome.text);
  EXPECT_THAT(texts, Each("good"));
}

TEST(Failure, WaitingForARankThatHasEndedIsAnErrorNotAHang) {
  run_job(2, [](Session& session, int rank) {
    if (rank == 1) return;
    try {
      session.control().receive(1, "never sent");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const BackendError& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 1"), HasSubstr("has ended and sent no message 'never sent'")));
    }
  });
}

}  // namespace
}  // namespace fsdpbench::launch
