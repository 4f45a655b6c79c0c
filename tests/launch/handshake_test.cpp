// How a job comes together, and what is said when it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <thread>

#include "launch/addresses.h"
#include "launch/local_job.h"

namespace fsdpbench::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::free_port;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::place;

/// Exception of join(), or "joined".
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

/// Message of `attempt`, a join that is given up after so many seconds. A busy machine gets more and more of them,
/// until `words` come up.
std::string with_time_for(std::string_view words, const std::function<std::string(double)>& attempt) {
  for (double deadline_s = 0.3;; deadline_s *= 3) {
    const std::string text = attempt(deadline_s);
    if (text.find(words) != std::string::npos || deadline_s > 20) return text;
  }
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
  const std::string words = "ranks 1, 3, 4 of 5 did not join in time; rank 0 waits on ";
  std::string told_to_two;
  const std::string text = with_time_for(words, [&](double deadline_s) {
    auto zero = joining(place(0, 5, port), {.deadline_s = deadline_s, .version = "v"});
    auto two = joining(place(2, 5, port), {.deadline_s = deadline_s + 60, .version = "v"});  // it is told before that
    told_to_two = two.get();
    return zero.get();
  });
  EXPECT_THAT(text, AllOf(HasSubstr(words), HasSubstr("127.0.0.1:" + std::to_string(port))));
  EXPECT_EQ(told_to_two, text);
}

TEST(Handshake, OneMissingRankIsNamed) {
  const JoinOptions soon{.deadline_s = 0.2, .version = "v"};
  EXPECT_THAT(join_text(place(0, 2, free_port()), soon), HasSubstr("rank 1 of 2 did not join in time"));
}

TEST(Handshake, NoRankZeroIsNamedWithItsAddress) {
  const int port = free_port();
  const auto text = [&](const Placement& placement, std::string_view words) {
    return with_time_for(
        words, [&](double deadline_s) { return join_text(placement, {.deadline_s = deadline_s, .version = "v"}); });
  };
  const std::string address = "rank 1 cannot join rank 0: 127.0.0.1:" + std::to_string(port);
  const testing::WithVariable secret("FSDPBENCH_SECRET", "a test's own secret");
  EXPECT_THAT(text(place(1, 2, port), "Connection refused"),
              AllOf(HasSubstr(address), HasSubstr("(from a test)"), HasSubstr("Connection refused")));
  Placement nowhere = place(1, 2, port);
  nowhere.root_host = "no-such-host.invalid";
  nowhere.local_ranks = 1;  // on one host names do not matter
  EXPECT_THAT(text(nowhere, "is unknown"), HasSubstr("the name 'no-such-host.invalid' is unknown"));
}

TEST(Handshake, AnotherVersionIsRefusedOnBothSides) {
  std::string one;
  std::string two;
  // Rank 2 is told if it came before rank 1 did: a busy machine gets more and more time for that.
  for (int wait_ms = 100; wait_ms < 20'000; wait_ms *= 3) {
    const int port = free_port();
    auto zero = joining(place(0, 3, port));
    auto second = joining(place(2, 3, port), {.deadline_s = 1 + 2e-3 * wait_ms, .version = "v"});
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    one = join_text(place(1, 3, port), {.deadline_s = 60, .version = "w"});
    EXPECT_THAT(one, ContainsRegex("^rank 1 \\(.*\\) runs another version, 'w', than rank 0, 'v'$"));
    EXPECT_EQ(zero.get(), one);
    two = second.get();
    if (two == one) break;
  }
  EXPECT_EQ(two, one);
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
  const std::string stranger = with_time_for("secret", [&](double deadline_s) {
    return join_text(place(1, 2, port, "another"), {.deadline_s = deadline_s, .version = "v"});
  });
  EXPECT_THAT(stranger,
              HasSubstr("whoever listens there is of another job, or FSDPBENCH_SECRET is set there and not here"));
  EXPECT_EQ(join_text(place(1, 2, port)), "joined");
  EXPECT_EQ(zero.get(), "joined");
}

TEST(Handshake, GarbageIsTurnedAwayAndMentionedIfRanksStayAway) {
  const int port = free_port();
  const std::string text = with_time_for("turned away", [&](double deadline_s) {
    auto zero = joining(place(0, 2, port), {.deadline_s = deadline_s, .version = "v"});
    std::string error;
    Socket stranger;
    const Deadline end = deadline_in(deadline_s);
    while (!stranger && Deadline::clock::now() < end) stranger = connect_to("127.0.0.1", port, end, error);
    const std::string request = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
    if (stranger) (void)stranger.send(request.data(), request.size());
    return zero.get();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 1 of 2 did not join"), HasSubstr("it has turned away a process at 127.0.0.1"),
                          HasSubstr("does not speak fsdpbench's protocol")));
}

TEST(Handshake, AProcessThatEndedWhileWaitingMayComeAgain) {
  const int port = free_port();
  auto zero = joining(place(0, 3, port));
  const Introduction self = introduce(place(1, 3, port), {.version = "v"});
  std::string reason;
  while (reason.find("the other ranks have not all come") == std::string::npos) {
    EXPECT_FALSE(ask_to_join("127.0.0.1", port, self, "", deadline_in(0.1), reason));
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
  const testing::WithVariable secret("FSDPBENCH_SECRET", "a test's own secret");
  std::string error;
  Socket other = listen_at("127.0.0.1", 0, error);
  std::jthread answers([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (Socket guest = accept_from(other)) (void)guest.send("HTTP/1.1 400 Bad Request\r\n\r\n", 28);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const std::string text = with_time_for("speak", [&](double deadline_s) {
    return join_text(place(1, 2, other.local_port()), {.deadline_s = deadline_s, .version = "v"});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 1 cannot join rank 0: 127.0.0.1:"),
                          ::testing::AnyOf(HasSubstr("does not speak fsdpbench's protocol"),
                                           HasSubstr("something else may be listening there"))));
}

// --------------------------------------------------------------------------------------------------- strangers

/// A connection to rank 0 that knows its port and nothing else.
Socket call(int port) {
  std::string error;
  Socket socket;
  while (!socket) socket = connect_to("127.0.0.1", port, deadline_in(10), error);
  return socket;
}

/// All that comes until the other side closes.
std::string listen(Socket& socket) {
  std::string heard;
  char buffer[4096];
  for (;;) {
    const Socket::Moved moved = socket.receive(buffer, sizeof buffer);
    heard.append(buffer, moved.bytes);
    if (moved.closed) return heard;
    if (moved.bytes == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void say(Socket& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const Socket::Moved moved = socket.send(bytes.data(), bytes.size());
    if (moved.closed) return;
    bytes.remove_prefix(moved.bytes);
  }
}

TEST(Strangers, WithAnotherSecretAreTurnedAwayWhateverTheySay) {
  const int port = free_port();
  auto zero = joining(place(0, 2, port));
  const Introduction self = introduce(place(1, 2, port), {.version = "another version"});
  std::string reason;
  // A right hello of another version, as rank 1, ended jobs before.
  while (reason.find("does not have this job's secret") == std::string::npos) {
    EXPECT_FALSE(ask_to_join("127.0.0.1", port, self, random_token(), deadline_in(10), reason));
  }
  EXPECT_EQ(join_text(place(1, 2, port)), "joined");
  EXPECT_EQ(zero.get(), "joined");
}

TEST(Strangers, NoSecretAndPartOfOneAreNone) {
  const int port = free_port();
  const testing::WithVariable given("FSDPBENCH_SECRET", "a test's own secret");
  auto zero = joining(place(0, 2, port), {.deadline_s = 10, .version = "v"});
  for (const std::string secret : {"", "a test's own secre"}) {
    Socket stranger = call(port);
    const std::string body = pack({"v", "1", "2", "somewhere", "1"});
    say(stranger, encode(FrameKind::hello, "", pack({secret, "to join ", body})));
    EXPECT_THAT(listen(stranger), HasSubstr("does not have this job's secret"));
  }
  EXPECT_THAT(zero.get(), AllOf(HasSubstr("rank 1 of 2 did not join in time"),
                                HasSubstr("does not have this job's secret"), Not(HasSubstr(" more"))));
}

TEST(Strangers, OfAnotherUserOrNobodyKnownAreNotTrustedWithoutASecret) {
  std::string error;
  Socket listener = listen_at("127.0.0.1", 0, error);
  const Socket caller = connect_to("127.0.0.1", listener.local_port(), deadline_in(10), error);
  Socket accepted;
  while (!accepted) accepted = accept_from(listener);
  EXPECT_TRUE(peer_is_this_user(accepted.fd()));
  EXPECT_TRUE(peer_is_this_user(caller.fd()));
  EXPECT_FALSE(peer_is_this_user(listener.fd())) << "it has no other end";
  accepted.close();
  EXPECT_FALSE(peer_is_this_user(-1));
  if (geteuid() != 0) return;  // only root can be another user
  const Socket again = connect_to("127.0.0.1", listener.local_port(), deadline_in(10), error);
  while (!accepted) accepted = accept_from(listener);
  ASSERT_EQ(seteuid(65534), 0);
  const bool trusted = peer_is_this_user(accepted.fd());
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_FALSE(trusted);
}

TEST(Strangers, NothingThatTheySayIsRepeated) {
  const int port = free_port();
  auto zero = joining(place(0, 2, port), {.deadline_s = 4, .version = "v"});
  Socket stranger = call(port);
  const std::string body = pack({"\x1b[31m", "1", "2", "\x1b]0;host\x07", "1"});
  say(stranger, encode(FrameKind::hello, "\x1b[2J", pack({"\x1b", "\x1b[31m", body})));
  EXPECT_THAT(listen(stranger), ::testing::Not(HasSubstr("\x1b[31m")));
  EXPECT_THAT(zero.get(), ::testing::Not(HasSubstr("\x1b[31m")));
}

TEST(Strangers, LargeHellosAreRefusedWhenTheyAreAnnounced) {
  const int port = free_port();
  auto zero = joining(place(0, 2, port));
  Socket stranger = call(port);
  std::string header = encode(FrameKind::hello, "", "").substr(0, 16);
  const std::uint64_t payload = std::uint64_t{1} << 30;
  header.append(reinterpret_cast<const char*>(&payload), sizeof payload);
  say(stranger, header);
  EXPECT_THAT(listen(stranger), HasSubstr("does not speak fsdpbench's protocol"));  // before a byte of it came
  EXPECT_EQ(join_text(place(1, 2, port)), "joined");
  EXPECT_EQ(zero.get(), "joined");
}

TEST(Strangers, ManyWhoSaySilentlyNothingKeepNobodyOut) {
  const int port = free_port();
  auto zero = joining(place(0, 2, port));
  std::vector<Socket> silent;
  for (std::size_t i = 0; i < kMostGuests + 100; ++i) silent.push_back(call(port));
  EXPECT_EQ(join_text(place(1, 2, port)), "joined");
  EXPECT_EQ(zero.get(), "joined");
}

TEST(Strangers, TheOneWhoIsSilentLongestMakesRoom) {
  const int port = free_port();
  auto zero = joining(place(0, 2, port), {.deadline_s = 60, .version = "v"});
  Socket first = call(port);
  std::vector<Socket> others;
  for (std::size_t i = 0; i < kMostGuests; ++i) others.push_back(call(port));
  EXPECT_THAT(listen(first), HasSubstr("said nothing while others wanted to come in"));
  EXPECT_EQ(join_text(place(1, 2, port)), "joined");
  EXPECT_EQ(zero.get(), "joined");
}

TEST(Strangers, WhoPosesAsRankZeroIsNotBelieved) {
  std::string error;
  Socket other = listen_at("127.0.0.1", 0, error);
  std::jthread poses([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      Socket guest = accept_from(other);
      if (!guest) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      say(guest, "fsdpbench job 4\n");
      say(guest, encode(FrameKind::refusal, "", "two processes say that they are rank 1"));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  const Introduction self = introduce(place(1, 2, other.local_port()), {.version = "v"});
  std::string reason;
  EXPECT_FALSE(ask_to_join("127.0.0.1", other.local_port(), self, random_token(), deadline_in(5), reason));
  EXPECT_THAT(reason, HasSubstr("does not have this job's secret"));
}

// ------------------------------------------------------------------------------------- where rank 0 may be reached

Environment no_environment() {
  return [](const char*) -> const char* { return nullptr; };
}

TEST(Door, OfOneHostIsClosedToOthers) {
  const int port = free_port();
  Placement zero = place(0, 2, port);
  zero.root_host = host_name();  // as torchrun says it, also for one host
  auto leads = std::async(std::launch::async, [=] { return join(zero, {.deadline_s = 60, .version = "v"})->door(); });
  EXPECT_EQ(join_text(place(1, 2, port)), "joined");
  EXPECT_EQ(leads.get(), "127.0.0.1:" + std::to_string(port));
}

/// Message of rank 0 of two hosts that is to be reached at `host`.
std::string where_text(const std::string& host) {
  const testing::WithVariable secret("FSDPBENCH_SECRET", "a test's own secret");
  Placement zero = place(0, 2, free_port());
  zero.local_ranks = 1;
  zero.root_host = host;
  try {
    (void)join(zero, {.deadline_s = 0.1, .version = "v"});
    return "joined";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

TEST(Door, AnAddressOfAnotherHostIsAnError) {
  EXPECT_THAT(
      where_text("192.0.2.1"),  // kept for documentation: nobody's
      AllOf(HasSubstr("'192.0.2.1' (a test)"), HasSubstr("cannot listen there"), HasSubstr("FSDPBENCH_LISTEN")));
}

TEST(Door, AMisspeltNameIsAnErrorAndNoOpenDoor) {
  EXPECT_THAT(where_text("no-such-host.invalid"),
              AllOf(HasSubstr("'no-such-host.invalid' (a test)"), HasSubstr("unknown")));
}

TEST(Door, ListensWhereTheUserSays) {
  Placement zero = place(0, 2, 1);
  const Environment all = [](const char* name) {
    return std::string_view(name) == "FSDPBENCH_LISTEN" ? "all" : nullptr;
  };
  EXPECT_EQ(address_to_listen_at(zero, all), "127.0.0.1") << "nobody else needs to reach it";
  zero.local_ranks = 1;
  zero.root_host = "192.0.2.1";
  EXPECT_EQ(address_to_listen_at(zero, all), "");
  const testing::WithVariable wrong("FSDPBENCH_LISTEN", "192.0.2.1");
  EXPECT_THAT(where_text("localhost"), HasSubstr("FSDPBENCH_LISTEN"));
}

TEST(Door, RanksOfSeveralHostsNeedASecretThatTheyShare) {
  Placement far = place(1, 4, free_port());
  far.local_ranks = 2;
  try {
    (void)meet(far, introduce(far, {}), deadline_in(1), no_environment());
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("FSDPBENCH_SECRET"));
  }
}

TEST(Door, TheSecretOfTheEnvironmentLetsIn) {
  const testing::WithVariable secret("FSDPBENCH_SECRET", "the same random text");
  const int port = free_port();
  Placement zero = place(0, 2, port), one = place(1, 2, port);
  zero.local_ranks = one.local_ranks = 1;
  auto leads = joining(zero);
  EXPECT_EQ(join_text(one), "joined");
  EXPECT_EQ(leads.get(), "joined");
}

TEST(Door, AGuessableSecretIsRefusedAndNotRepeated) {
  const testing::WithVariable guessable("FSDPBENCH_SECRET", "hunter2");
  try {
    (void)join(place(0, 2, free_port()), {.deadline_s = 1, .version = "v"});
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("can be guessed"), ::testing::Not(HasSubstr("hunter2"))));
  }
}

}  // namespace
}  // namespace fsdpbench::launch
