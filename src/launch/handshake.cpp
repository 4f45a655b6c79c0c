#include "launch/handshake.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <list>

#include "launch/host_identity.h"

namespace fsdpbench::launch {
namespace {

constexpr std::string_view kProtocol = "fsdpbench control 1";
constexpr std::string_view kOtherJob = "other job";
constexpr std::size_t kHelloFields = 8;
constexpr double kConnectSeconds = 3;
constexpr double kLastWordsSeconds = 2;
constexpr int kPollMs = 10;

long number(const std::string& text) {
  long value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string pack_hello(const Introduction& self) {
  return pack({std::string(kProtocol), self.job, self.version, self.token, std::to_string(self.rank),
               std::to_string(self.ranks), self.host, std::to_string(self.pid)});
}

/// Throws BackendError if it is not a hello that this program understands.
Introduction unpack_hello(const Frame& frame) {
  if (frame.kind != FrameKind::hello) throw BackendError("it does not speak fsdpbench's protocol");
  const std::vector<std::string> texts = unpack(frame.payload);
  if (texts.empty() || texts[0] != kProtocol || texts.size() != kHelloFields) {
    throw BackendError("it speaks the protocol of another version of fsdpbench");
  }
  return {texts[1], texts[2],        texts[3], static_cast<int>(number(texts[4])), static_cast<int>(number(texts[5])),
          texts[6], number(texts[7])};
}

/// Sends all of it, and waits for that a short while at most.
void send_all(Socket& socket, std::string_view bytes) {
  const Deadline deadline = deadline_in(kLastWordsSeconds);
  while (!bytes.empty() && std::chrono::steady_clock::now() < deadline) {
    const Socket::Moved moved = socket.send(bytes.data(), bytes.size());
    if (moved.closed) return;
    bytes.remove_prefix(moved.bytes);
    if (moved.bytes == 0) {
      pollfd room{socket.fd(), POLLOUT, 0};
      (void)::poll(&room, 1, kPollMs);
    }
  }
}

/// `topic` kOtherJob: this is not the rank 0 that the process is looking for.
void refuse(Link& link, const std::string& message, std::string_view topic = {}) {
  send_all(link.socket, encode(FrameKind::refusal, topic, message));
  link.socket.end_sending();
}

/// Rank 0 while the others arrive.
class Reception {
 public:
  Reception(Socket listener, Introduction self) : listener_(std::move(listener)), self_(std::move(self)) {
    if (self_.token.empty()) self_.token = random_token();
    joined_.token = self_.token;
    joined_.members.resize(static_cast<std::size_t>(self_.ranks));
    joined_.links.resize(static_cast<std::size_t>(self_.ranks));
    joined_.members[0] = {self_.host, self_.pid, {}};
  }

  Joined take_in_all(Deadline deadline) {
    try {
      while (!missing().empty()) {
        if (std::chrono::steady_clock::now() > deadline) throw BackendError(who_is_missing());
        wait();
        while (Socket socket = accept_from(listener_)) guests_.push_back({std::move(socket), {}});
        notice_who_left();  // before their successors say hello
        guests_.remove_if([this](Link& guest) { return settled(guest); });
      }
    } catch (const BackendError& e) {
      for (Link& link : joined_.links) {
        if (link.socket) refuse(link, e.what());
      }
      throw;
    }
    welcome_all();
    return std::move(joined_);
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < self_.ranks; ++rank) {
      if (!joined_.links[static_cast<std::size_t>(rank)].socket) ranks.push_back(rank);
    }
    return ranks;
  }

  std::string who_is_missing() const {
    const std::vector<int> ranks = missing();
    return fmt::format("rank{} {} of {} did not join in time; rank 0 waits on {} at {}{}", ranks.size() > 1 ? "s" : "",
                       fmt::join(ranks, ", "), self_.ranks, self_.host,
                       endpoint(listener_.local_address(), listener_.local_port()), strangers_);
  }

  void wait() const {
    std::vector<pollfd> watched{{listener_.fd(), POLLIN, 0}};
    for (const Link& guest : guests_) watched.push_back({guest.socket.fd(), POLLIN, 0});
    (void)::poll(watched.data(), watched.size(), kPollMs);
  }

  /// True if nothing more is to be done with this guest: taken in, turned away or gone.
  bool settled(Link& guest) {
    std::optional<Introduction> hello;
    try {
      const Socket::Moved moved = guest.reader.take(guest.socket);
      const std::optional<Frame> frame = guest.reader.next();
      if (!frame) return moved.closed;
      hello = unpack_hello(*frame);
    } catch (const BackendError& e) {
      turn_away(guest, fmt::format("a process at {}: {}", guest.socket.peer_address(), e.what()));
      return true;
    }
    take_in(guest, *hello);
    return true;
  }

  void take_in(Link& guest, const Introduction& hello) {
    const Member member{hello.host, hello.pid, guest.socket.peer_address()};
    if (hello.job != self_.job || (!hello.token.empty() && hello.token != self_.token)) {
      turn_away(guest, fmt::format("a process on {} (pid {}) of another job, '{}'; this is '{}'", hello.host, hello.pid,
                                   hello.job, self_.job));
      return;
    }
    const std::string who = describe(hello.rank, member);
    if (hello.version != self_.version) {
      give_up(guest,
              fmt::format("{} runs another version, '{}', than rank 0, '{}'", who, hello.version, self_.version));
    }
    if (hello.ranks != self_.ranks || hello.rank < 1 || hello.rank >= self_.ranks) {
      give_up(guest, fmt::format("{} of {} cannot join a job of {} ranks", who, hello.ranks, self_.ranks));
    }
    const auto rank = static_cast<std::size_t>(hello.rank);
    if (joined_.links[rank].socket) {
      give_up(guest, fmt::format("two processes say that they are rank {}: {}, and {}", hello.rank,
                                 describe(hello.rank, joined_.members[rank]), who));
    }
    joined_.members[rank] = member;
    joined_.links[rank] = std::move(guest);
  }

  /// This one does not belong here; the job may still come to be.
  void turn_away(Link& guest, const std::string& why) {
    strangers_ = "; it has turned away " + why;
    refuse(guest, "rank 0 has turned away " + why, kOtherJob);
  }

  /// The job cannot come to be.
  [[noreturn]] void give_up(Link& guest, const std::string& why) {
    refuse(guest, why);
    throw BackendError(why);
  }

  /// A process that joined and ended again may be started once more.
  void notice_who_left() {
    for (Link& link : joined_.links) {
      if (link.socket && link.reader.take(link.socket).closed) link = Link{};
    }
  }

  void welcome_all() {
    std::vector<std::string> texts{joined_.token};
    for (Member& member : joined_.members) {
      if (is_loopback(member.address)) member.address.clear();
      texts.insert(texts.end(), {member.host, std::to_string(member.pid), member.address});
    }
    const std::string bytes = encode(FrameKind::welcome, "", pack(texts));
    for (Link& link : joined_.links) {
      if (link.socket) send_all(link.socket, bytes);
    }
  }

  Socket listener_;
  Introduction self_;
  Joined joined_;
  std::list<Link> guests_;  ///< connected, have not said hello yet
  std::string strangers_;
};

/// Rank 0's answer to the hello, or nothing if it ended the connection without one or `deadline` has passed.
std::optional<Frame> answer(Link& link, Deadline deadline, std::string& reason) {
  while (std::chrono::steady_clock::now() < deadline) {
    const Socket::Moved moved = link.reader.take(link.socket);
    if (std::optional<Frame> frame = link.reader.next()) return frame;
    if (moved.closed) {
      reason = "the connection was closed without an answer: something else may be listening there";
      return std::nullopt;
    }
    pollfd watched{link.socket.fd(), POLLIN, 0};
    (void)::poll(&watched, 1, kPollMs);
  }
  reason = "it answers, but the other ranks have not all come";
  return std::nullopt;
}

Joined unpack_welcome(const Frame& frame, int ranks) {
  const std::vector<std::string> texts = unpack(frame.payload);
  if (texts.size() != 1 + 3 * static_cast<std::size_t>(ranks)) throw BackendError("rank 0's list of ranks is cut off");
  Joined joined;
  joined.token = texts[0];
  for (std::size_t i = 1; i < texts.size(); i += 3)
    joined.members.push_back({texts[i], number(texts[i + 1]), texts[i + 2]});
  return joined;
}

}  // namespace

std::string describe(int rank, const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", rank, member.host, member.pid);
}

Joined take_in_all(Socket listener, Introduction self, Deadline deadline) {
  return Reception(std::move(listener), std::move(self)).take_in_all(deadline);
}

std::optional<Joined> ask_to_join(const std::string& host, int port, const Introduction& self, Deadline deadline,
                                  std::string& reason) {
  Link link{connect_to(host, port, std::min(deadline, deadline_in(kConnectSeconds)), reason), {}};
  if (!link.socket) return std::nullopt;
  send_all(link.socket, encode(FrameKind::hello, "", pack_hello(self)));
  std::optional<Frame> frame;
  try {
    frame = answer(link, deadline, reason);
  } catch (const BackendError& e) {
    reason = e.what();
  }
  if (!frame) return std::nullopt;
  if (frame->kind == FrameKind::refusal && frame->topic == kOtherJob && !self.token.empty()) {
    reason = frame->payload;  // with a token, the right one is somewhere else or not there yet
    return std::nullopt;
  }
  if (frame->kind == FrameKind::refusal) throw Refused(frame->payload);
  if (frame->kind != FrameKind::welcome) throw Refused("rank 0 answered with something else than a welcome");
  Joined joined = unpack_welcome(*frame, self.ranks);
  joined.links.push_back(std::move(link));
  return joined;
}

}  // namespace fsdpbench::launch
