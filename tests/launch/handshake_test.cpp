// How a job comes together, and what is said when it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "launch/local_job.h"

namespace fsdpbench::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::free_port;
using ::testing::HasSubstr;
using testing::place;

/// What join() throws, or "joined".
std::string join_text(const Placement& placement, const JoinOptions& options = {.deadline_s = 60, .version = "v"}) {
  try {
    const auto session = join(placement, options);
    return "joined";
  } catch (const BackendError& e) {
    return e.what();
  }
}

std::future<std::string> joining(const Placement& placement,
                                 const JoinOptions& options = {.deadline_s = 60, .version = "v"}) {
  return std::async(std::launch::async, [=] { return join_text(placement, options); });
}

TEST(Handshake, RankZeroMayComeLast) {
  const int port = free_port();
  auto one = joining(place(1, 3, port));
  auto two = joining(place(2, 3, port));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  auto zero = joining(place(0, 3, port));
  EXPECT_EQ(zero.get(), "joined");
  EXPECT_EQ(one.get(), "joined");
  EXPECT_EQ(two.get(), "joined");
}

TEST(Handshake, MissingRanksAreNamedToAllWhoCame) {
  const int port = free_port();
  const JoinOptions soon{.deadline_s = 1, .version = "v"};
  auto zero = joining(place(0, 5, port), soon);
  auto two = joining(place(2, 5, port), soon);
  const std::string text = zero.get();
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 1, 3, 4 of 5 did not join in time; rank 0 waits on "),
                          HasSubstr("127.0.0.1:" + std::to_string(port))));
  EXPECT_EQ(two.get(), text);
}

TEST(Handshake, OneMissingRankIsNamed) {
  const JoinOptions soon{.deadline_s = 0.2, .version = "v"};
  EXPECT_THAT(join_text(place(0, 2, free_port()), soon), HasSubstr("rank 1 of 2 did not join in time"));
}

TEST(Handshake, NoRankZeroIsNamedWithItsAddress) {
  const int port = free_port();
  const JoinOptions soon{.deadline_s = 0.2, .version = "v"};
  EXPECT_THAT(join_text(place(1, 2, port), soon),
              AllOf(HasSubstr("rank 1 cannot join rank 0: 127.0.0.1:" + std::to_string(port)),
                    HasSubstr("(from a test)"), HasSubstr("Connection refused")));
  Placement nowhere = place(1, 2, port);
  nowhere.root_host = "no-such-host.invalid";
  EXPECT_THAT(join_text(nowhere, soon), HasSubstr("the name 'no-such-host.invalid' is unknown"));
}

TEST(Handshake, AnotherVersionIsRefusedOnBothSides) {
  const int port = free_port();
  auto zero = joining(place(0, 3, port));
  auto two = joining(place(2, 3, port));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::string one = join_text(place(1, 3, port), {.deadline_s = 60, .version = "w"});
  EXPECT_THAT(one, ContainsRegex("^rank 1 \\(.*\\) runs another version, 'w', than rank 0, 'v'$"));
  EXPECT_EQ(zero.get(), one);
  EXPECT_EQ(two.get(), one);
}

TEST(Handshake, TwoProcessesOfOneRankAreRefused) {
  const int port = free_port();
  auto zero = joining(place(0, 3, port));
  auto one = joining(place(1, 3, port));
  auto again = joining(place(1, 3, port));
  const std::string text = zero.get();
  EXPECT_THAT(text, HasSubstr("two processes say that they are rank 1: rank 1 (host "));
  EXPECT_EQ(one.get(), text);
  EXPECT_EQ(again.get(), text);
}

TEST(Handshake, AnotherNumberOfRanksIsRefused) {
  const int port = free_port();
  auto zero = joining(place(0, 3, port));
  const std::string text = join_text(place(1, 2, port));
  EXPECT_THAT(text, ContainsRegex("^rank 1 \\(.*\\) of 2 cannot join a job of 3 ranks$"));
  EXPECT_EQ(zero.get(), text);
}

TEST(Handshake, AStrangersJobIsTurnedAwayAndTheOwnComesToBe) {
  const int port = free_port();
  auto zero = joining(place(0, 2, port));
  const std::string stranger = join_text(place(1, 2, port, "another"));
  EXPECT_THAT(stranger, AllOf(HasSubstr("rank 0 has turned away a process on "),
                              HasSubstr("of another job, 'another'; this is 'a test'")));
  EXPECT_EQ(join_text(place(1, 2, port)), "joined");
  EXPECT_EQ(zero.get(), "joined");
}

TEST(Handshake, GarbageIsTurnedAwayAndMentionedIfRanksStayAway) {
  const int port = free_port();
  auto zero = joining(place(0, 2, port), {.deadline_s = 1, .version = "v"});
  std::string error;
  Socket stranger;
  while (!stranger) stranger = connect_to("127.0.0.1", port, deadline_in(10), error);
  const std::string request = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
  EXPECT_EQ(stranger.send(request.data(), request.size()).bytes, request.size());
  EXPECT_THAT(zero.get(),
              AllOf(HasSubstr("rank 1 of 2 did not join"), HasSubstr("it has turned away a process at 127.0.0.1"),
                    HasSubstr("does not speak fsdpbench's protocol")));
}

TEST(Handshake, AProcessThatEndedWhileWaitingMayComeAgain) {
  const int port = free_port();
  auto zero = joining(place(0, 3, port));
  const Introduction self = introduce(place(1, 3, port), {.version = "v"});
  std::string reason;
  while (reason.find("the other ranks have not all come") == std::string::npos) {
    EXPECT_FALSE(ask_to_join("127.0.0.1", port, self, deadline_in(0.1), reason));
  }
  auto one = joining(place(1, 3, port));
  auto two = joining(place(2, 3, port));
  EXPECT_EQ(zero.get(), "joined");
  EXPECT_EQ(one.get(), "joined");
  EXPECT_EQ(two.get(), "joined");
}

TEST(Handshake, APortInUseSaysWhatToSet) {
  std::string error;
  const Socket holder = listen_at("127.0.0.1", 0, error);
  EXPECT_THAT(join_text(place(0, 2, holder.local_port())),
              AllOf(HasSubstr("rank 0 cannot listen on port " + std::to_string(holder.local_port()) + " of 127.0.0.1"),
                    HasSubstr("Address already in use"), HasSubstr("set FSDPBENCH_PORT to a free port"),
                    HasSubstr("(the port comes from a test)")));
}

TEST(Handshake, AListenerThatIsNoFsdpbenchIsNamed) {
  std::string error;
  Socket other = listen_at("127.0.0.1", 0, error);
  std::jthread answers([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (Socket guest = accept_from(other)) (void)guest.send("HTTP/1.1 400 Bad Request\r\n\r\n", 28);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_THAT(join_text(place(1, 2, other.local_port()), {.deadline_s = 0.5, .version = "v"}),
              AllOf(HasSubstr("rank 1 cannot join rank 0: 127.0.0.1:"),
                    ::testing::AnyOf(HasSubstr("does not speak fsdpbench's protocol"),
                                     HasSubstr("something else may be listening there"))));
}

}  // namespace
}  // namespace fsdpbench::launch
