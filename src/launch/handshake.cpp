#include "launch/handshake.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <list>

#include "launch/addresses.h"

namespace fsdpbench::launch {
namespace {

constexpr std::string_view kProtocol = "fsdpbench control 2";
constexpr std::size_t kHelloFields = 6;
constexpr double kConnectSeconds = 3;
constexpr double kLastWordsSeconds = 2;
constexpr int kMostAcceptedAtOnce = 32;  // a flood must not keep those who are there already waiting
constexpr int kMostPollMs = 200;
constexpr std::size_t kMostMissingNamed = 32;

long number(const std::string& text) {
  long value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string pack_introduction(const Introduction& self) {
  return pack({self.job, self.version, std::to_string(self.rank), std::to_string(self.ranks), self.host,
               std::to_string(self.pid)});
}

Introduction unpack_introduction(std::string_view bytes) {
  const std::vector<std::string> texts = unpack(bytes);
  if (texts.size() != kHelloFields) throw BackendError("its hello is of another version of fsdpbench");
  return {texts[0], texts[1],        static_cast<int>(number(texts[2])), static_cast<int>(number(texts[3])),
          texts[4], number(texts[5])};
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

/// The two nonces of one connection, and what is proved with them.
struct Nonces {
  std::string start;  ///< the same for all connections of one start of rank 0
  std::string root;
  std::string guest;

  std::string prove(const Secret& secret, std::string_view role, std::string_view body) const {
    return secret.prove({kProtocol, role, start, root, guest, body});
  }
  bool proves(const Secret& secret, std::string_view proof, std::string_view role, std::string_view body) const {
    return secret.proves(proof, {kProtocol, role, start, root, guest, body});
  }
};

constexpr std::string_view kGuest = "guest";
constexpr std::string_view kWelcome = "welcome";
constexpr std::string_view kRefusal = "refusal";
constexpr std::string_view kOtherJob = "other job";

std::string token_of(const Secret& secret, const std::string& start) { return secret.prove({"token", start}); }

/// Rank 0 while the others arrive.
class Reception {
 public:
  Reception(Socket listener, const Introduction& self, const Secret& secret)
      : listener_(std::move(listener)), self_(self), secret_(secret), start_(fresh_nonce()) {
    joined_.token = token_of(secret_, start_);
    joined_.members.resize(static_cast<std::size_t>(self_.ranks));
    joined_.links.resize(static_cast<std::size_t>(self_.ranks));
    nonces_.resize(static_cast<std::size_t>(self_.ranks));
    joined_.members[0] = {self_.host, self_.pid, {}};
    joined_.door = endpoint(listener_.local_address(), listener_.local_port());
  }

  Joined take_in_all(Deadline deadline) {
    try {
      while (!missing().empty()) {
        if (std::chrono::steady_clock::now() > deadline) throw BackendError(who_is_missing());
        wait(deadline);
        notice_who_left();  // before their successors say hello
        guests_.remove_if([this](Guest& guest) { return settled(guest); });
        open_to_callers();
      }
    } catch (const BackendError& e) {
      for (std::size_t rank = 0; rank < joined_.links.size(); ++rank) {
        if (joined_.links[rank].socket) answer(joined_.links[rank], nonces_[rank], kRefusal, {}, e.what());
      }
      throw;
    }
    welcome_all();
    return std::move(joined_);
  }

 private:
  /// Connected, and not yet shown to be of the job.
  struct Guest {
    ControlLink link;
    Nonces nonces;
    Deadline until;
    bool readable = false;
  };

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < self_.ranks; ++rank) {
      if (!joined_.links[static_cast<std::size_t>(rank)].socket) ranks.push_back(rank);
    }
    return ranks;
  }

  std::string who_is_missing() const {
    std::vector<int> ranks = missing();
    const std::size_t all = ranks.size();
    ranks.resize(std::min(all, kMostMissingNamed));
    return fmt::format("rank{} {}{} of {} did not join in time; rank 0 waits on {} at {}{}", all > 1 ? "s" : "",
                       fmt::join(ranks, ", "),
                       all > ranks.size() ? fmt::format(" and {} more", all - ranks.size()) : "", self_.ranks,
                       self_.host, joined_.door, strangers());
  }

  std::string strangers() const {
    if (turned_away_ == 0) return "";
    return fmt::format("; it has turned away {}{}", last_stranger_,
                       turned_away_ > 1 ? fmt::format(" and {} more", turned_away_ - 1) : "");
  }

  /// Until somebody calls or says something, a guest's time is over, or the deadline has passed.
  void wait(Deadline deadline) {
    std::vector<pollfd> watched{{listener_.fd(), POLLIN, 0}};
    Deadline next = deadline;
    for (const Guest& guest : guests_) {
      watched.push_back({guest.link.socket.fd(), POLLIN, 0});
      next = std::min(next, guest.until);
    }
    for (const ControlLink& link : joined_.links) {
      if (link.socket) watched.push_back({link.socket.fd(), POLLIN, 0});
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
    (void)::poll(watched.data(), watched.size(),
                 static_cast<int>(std::clamp<std::int64_t>(left.count() + 1, 0, kMostPollMs)));
    std::size_t at = 1;
    for (Guest& guest : guests_) guest.readable = watched[at++].revents != 0;
  }

  void open_to_callers() {
    for (int accepted = 0; accepted < kMostAcceptedAtOnce; ++accepted) {
      Socket socket = accept_from(listener_);
      if (!socket) return;
      if (guests_.size() >= kMostGuests) {
        turn_away(guests_.front(), "said nothing while others wanted to come in");
        guests_.pop_front();
      }
      Guest& guest = guests_.emplace_back(Guest{
          {std::move(socket), FrameReader(kMostGuestBytes)}, {start_, fresh_nonce(), {}}, deadline_in(kGuestSeconds)});
      const std::string challenge =
          encode(FrameKind::challenge, "", pack({std::string(kProtocol), start_, guest.nonces.root}));
      // Room for so little is always there; if it is not, the guest's time will be over.
      (void)guest.link.socket.send(challenge.data(), challenge.size());
    }
  }

  /// True if nothing more is to be done with this guest: taken in, turned away or gone.
  bool settled(Guest& guest) {
    if (!guest.readable) {
      if (std::chrono::steady_clock::now() < guest.until) return false;
      turn_away(guest, fmt::format("has not said hello within {:g} s", kGuestSeconds));
      return true;
    }
    std::optional<Introduction> hello;
    try {
      const Socket::Moved moved = guest.link.reader.take(guest.link.socket);
      const std::optional<Frame> frame = guest.link.reader.next();
      if (!frame) return moved.closed;
      hello = read_hello(*frame, guest.nonces);
    } catch (const BackendError& e) {
      turn_away(guest, e.what());
      return true;
    }
    if (hello) take_in(guest, *hello);
    return true;
  }

  /// Throws BackendError if it is not a hello of a process that has the secret.
  Introduction read_hello(const Frame& frame, Nonces& nonces) const {
    if (frame.kind != FrameKind::hello) throw BackendError("does not speak fsdpbench's protocol");
    const std::vector<std::string> texts = unpack(frame.payload);
    if (texts.size() != 3 || texts[1].size() != Secret::kBytes) {
      throw BackendError("speaks the protocol of another version of fsdpbench");
    }
    nonces.guest = texts[1];
    if (!nonces.proves(secret_, texts[0], kGuest, texts[2])) throw BackendError("does not have this job's secret");
    return unpack_introduction(texts[2]);
  }

  void take_in(Guest& guest, const Introduction& hello) {
    const Member member{hello.host, hello.pid, guest.link.socket.peer_address()};
    if (hello.job != self_.job) {
      const std::string why = fmt::format("a process on {} (pid {}) of another job, '{}'; this is '{}'", hello.host,
                                          hello.pid, hello.job, self_.job);
      ++turned_away_;
      last_stranger_ = why;
      answer(guest.link, guest.nonces, kRefusal, kOtherJob, "rank 0 has turned away " + why);
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
    guest.link.reader.allow(kMostPayloadBytes);
    joined_.links[rank] = std::move(guest.link);
    nonces_[rank] = guest.nonces;
  }

  /// `body` with the proof that it comes from rank 0.
  void answer(ControlLink& link, const Nonces& nonces, std::string_view role, std::string_view topic,
              const std::string& body) const {
    const FrameKind kind = role == kWelcome ? FrameKind::welcome : FrameKind::refusal;
    send_all(link.socket, encode(kind, topic, pack({nonces.prove(secret_, role, body), body})));
    if (kind == FrameKind::refusal) link.socket.end_sending();
  }

  /// This one does not belong here; the job may still come to be. Nothing that it said is repeated.
  void turn_away(Guest& guest, const std::string& why) {
    ++turned_away_;
    last_stranger_ = fmt::format("a process at {} that {}", guest.link.socket.peer_address(), why);
    const std::string last = encode(FrameKind::refusal, "", pack({"", "it " + why}));
    (void)guest.link.socket.send(last.data(), last.size());
    guest.link.socket.end_sending();
  }

  /// The job cannot come to be.
  [[noreturn]] void give_up(Guest& guest, const std::string& why) {
    answer(guest.link, guest.nonces, kRefusal, {}, why);
    throw BackendError(why);
  }

  /// A process that joined and ended again may be started once more.
  void notice_who_left() {
    for (ControlLink& link : joined_.links) {
      if (link.socket && link.reader.take(link.socket).closed) link = ControlLink{};
    }
  }

  void welcome_all() {
    std::vector<std::string> texts;
    for (Member& member : joined_.members) {
      if (is_loopback(member.address)) member.address.clear();
      texts.insert(texts.end(), {member.host, std::to_string(member.pid), member.address});
    }
    const std::string body = pack(texts);
    for (std::size_t rank = 0; rank < joined_.links.size(); ++rank) {
      if (joined_.links[rank].socket) answer(joined_.links[rank], nonces_[rank], kWelcome, {}, body);
    }
  }

  Socket listener_;
  const Introduction& self_;
  const Secret& secret_;
  const std::string start_;
  Joined joined_;
  std::vector<Nonces> nonces_;  ///< by rank, of those who joined
  std::list<Guest> guests_;     ///< the longest here first
  std::string last_stranger_;
  int turned_away_ = 0;
};

/// The next frame of rank 0, or nothing and why.
std::optional<Frame> next_frame(ControlLink& link, Deadline deadline, const char* silent, std::string& reason) {
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
  reason = silent;
  return std::nullopt;
}

/// What rank 0 said, shown to be from it; nothing, with the reason, if whoever answered has not shown that.
std::optional<std::string> proven(const Frame& frame, const Nonces& nonces, const Secret& secret, std::string& reason) {
  const std::vector<std::string> texts = unpack(frame.payload);
  const std::string_view role = frame.kind == FrameKind::welcome ? kWelcome : kRefusal;
  if (texts.size() == 2 && nonces.proves(secret, texts[0], role, texts[1])) return texts[1];
  reason = "whoever listens there does not have this job's secret, or another one";
  return std::nullopt;
}

Joined unpack_welcome(std::string_view body, int ranks) {
  const std::vector<std::string> texts = unpack(body);
  if (texts.size() != 3 * static_cast<std::size_t>(ranks)) throw Refused("rank 0's list of ranks is cut off");
  Joined joined;
  for (std::size_t i = 0; i < texts.size(); i += 3)
    joined.members.push_back({texts[i], number(texts[i + 1]), texts[i + 2]});
  return joined;
}

/// The handshake on an open connection.
std::optional<Joined> shake_hands(ControlLink& link, const Introduction& self, const Secret& secret, Deadline deadline,
                                  std::string& reason) {
  const std::optional<Frame> challenge = next_frame(link, std::min(deadline, deadline_in(kConnectSeconds)),
                                                    "it says nothing: something else may be listening there", reason);
  if (!challenge) return std::nullopt;
  const std::vector<std::string> texts = unpack(challenge->payload);
  if (challenge->kind != FrameKind::challenge || texts.size() != 3 || texts[0] != kProtocol) {
    reason = "it speaks the protocol of another version of fsdpbench";
    return std::nullopt;
  }
  const Nonces nonces{texts[1], texts[2], fresh_nonce()};
  const std::string body = pack_introduction(self);
  send_all(link.socket, encode(FrameKind::hello, "", pack({nonces.prove(secret, kGuest, body), nonces.guest, body})));
  link.reader.allow(kMostPayloadBytes);
  const std::optional<Frame> frame =
      next_frame(link, deadline, "it answers, but the other ranks have not all come", reason);
  if (!frame) return std::nullopt;
  const std::optional<std::string> said = proven(*frame, nonces, secret, reason);
  if (!said) return std::nullopt;
  if (frame->kind == FrameKind::refusal && frame->topic == kOtherJob) {
    reason = *said;  // the right one may be somewhere else, or not there yet
    return std::nullopt;
  }
  if (frame->kind == FrameKind::refusal) throw Refused(*said);
  Joined joined = unpack_welcome(*said, self.ranks);
  joined.token = token_of(secret, nonces.start);
  return joined;
}

}  // namespace

std::string describe(int rank, const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", rank, member.host, member.pid);
}

Joined take_in_all(Socket listener, const Introduction& self, const Secret& secret, Deadline deadline) {
  return Reception(std::move(listener), self, secret).take_in_all(deadline);
}

std::optional<Joined> ask_to_join(const std::string& host, int port, const Introduction& self, const Secret& secret,
                                  Deadline deadline, std::string& reason) {
  ControlLink link{connect_to(host, port, std::min(deadline, deadline_in(kConnectSeconds)), reason),
                   FrameReader(kMostGuestBytes)};
  if (!link.socket) return std::nullopt;
  try {
    std::optional<Joined> joined = shake_hands(link, self, secret, deadline, reason);
    if (joined) joined->links.push_back(std::move(link));
    return joined;
  } catch (const Refused&) {
    throw;
  } catch (const BackendError& e) {
    reason = e.what();
    return std::nullopt;
  }
}

}  // namespace fsdpbench::launch
