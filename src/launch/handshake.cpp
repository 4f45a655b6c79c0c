#include "launch/handshake.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "launch/addresses.h"

namespace fsdpbench::launch {
namespace {

// A door says kProtocol; the caller a frame of the secret, its purpose and its text; the door kWelcome.
constexpr std::string_view kProtocol = "fsdpbench job 4\n";
constexpr std::string_view kWelcome = "welcome\n";
constexpr double kConnectSeconds = 3;
constexpr double kLastWordsSeconds = 2;
constexpr int kMostAcceptedAtOnce = 32;  // a flood must not keep those who are there already waiting

bool is_over(Deadline deadline) { return std::chrono::steady_clock::now() > deadline; }

void wait_for(const Socket& socket, short event) {
  pollfd watched{socket.fd(), event, 0};
  (void)::poll(&watched, 1, kPollMs);
}

void send_all(Socket& socket, std::string_view bytes) {
  const Deadline deadline = deadline_in(kLastWordsSeconds);
  while (!bytes.empty() && !is_over(deadline)) {
    const Socket::Moved moved = socket.send(bytes.data(), bytes.size());
    if (moved.closed) return;
    bytes.remove_prefix(moved.bytes);
    if (moved.bytes == 0) wait_for(socket, POLLOUT);
  }
}

/// Not a byte more; fewer if no more come.
std::string receive_all(Socket& socket, std::size_t size, Deadline deadline, const std::function<bool()>& stopped) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size && !is_over(deadline) && !(stopped && stopped())) {
    const Socket::Moved moved = socket.receive(bytes.data() + done, size - done);
    if (moved.closed) break;
    done += moved.bytes;
    if (moved.bytes == 0) wait_for(socket, POLLIN);
  }
  bytes.resize(done);
  return bytes;
}

/// Takes as long whatever differs.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned differ = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    differ |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return differ == 0;
}

/// Purpose of joining `job`. Another job may have the same secret: an environment variable that was set for all.
std::string purpose_of(const std::string& job) { return "to join " + job; }

/// Rank 0 while the others arrive.
class Reception {
 public:
  Reception(Socket listener, const Introduction& self, const std::string& secret)
      : self_(self),
        members_(self.ranks),
        links_(members_.size()),
        where_(endpoint(listener.local_address(), listener.local_port())),
        door_(std::move(listener), secret, purpose_of(self.job)) {
    members_[0] = {self.host, self.pid, {}};
  }

  Joined take_in_all(Deadline deadline) {
    try {
      while (!missing().empty()) {
        if (is_over(deadline)) throw BackendError(who_is_missing());
        std::vector<Door::Arrival> arrivals = door_.let_in(watched());
        for (ControlLink& link : links_) {  // a process that joined and has ended may be started once more
          if (link.socket && link.reader.take(link.socket).closed) link = ControlLink{};
        }
        for (Door::Arrival& arrival : arrivals) take_in(arrival);
      }
    } catch (const BackendError& e) {
      for (ControlLink& link : links_) refuse(link.socket, e.what());
      throw;
    }
    std::vector<std::string> texts{random_token()};
    for (Member& member : members_) {
      if (is_loopback(member.address)) member.address.clear();
      texts.insert(texts.end(), {member.host, std::to_string(member.pid), member.address});
    }
    const std::string welcome = encode(FrameKind::welcome, "", pack(texts));
    for (ControlLink& link : links_) {
      if (link.socket) send_all(link.socket, welcome);
    }
    return {std::move(members_), texts[0], std::move(links_), where_};
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < self_.ranks; ++rank) {
      if (!links_[rank].socket) ranks.push_back(rank);
    }
    return ranks;
  }

  std::string who_is_missing() const {
    constexpr std::size_t kMostNamed = 32;
    std::vector<int> ranks = missing();
    const std::size_t all = ranks.size();
    ranks.resize(std::min(all, kMostNamed));
    return fmt::format("rank{} {}{} of {} did not join in time; rank 0 waits on {} at {}{}", all > 1 ? "s" : "",
                       fmt::join(ranks, ", "),
                       all > ranks.size() ? fmt::format(" and {} more", all - ranks.size()) : "", self_.ranks,
                       self_.host, where_, door_.strangers());
  }

  std::vector<pollfd> watched() const {
    std::vector<pollfd> all;
    for (const ControlLink& link : links_) all.push_back({link.socket.fd(), POLLIN, 0});  // without a socket: ignored
    return all;
  }

  void take_in(Door::Arrival& arrival) {
    const std::vector<std::string> texts = unpack(arrival.said);
    if (texts.size() != 5) throw BackendError("a process with this job's secret does not say who it is");
    const Member member{texts[3], std::stol(texts[4]), arrival.socket.peer_address()};
    const int rank = std::stoi(texts[1]);
    const std::size_t seat = rank;
    const std::string who = describe(rank, member);
    std::string why;
    if (texts[0] != self_.version) {
      why = fmt::format("{} runs another version, '{}', than rank 0, '{}'", who, texts[0], self_.version);
    } else if (std::stoi(texts[2]) != self_.ranks || rank < 1 || rank >= self_.ranks) {
      why = fmt::format("{} of {} cannot join a job of {} ranks", who, texts[2], self_.ranks);
    } else if (links_[seat].socket) {
      why =
          fmt::format("two processes say that they are rank {}: {}, and {}", rank, describe(rank, members_[seat]), who);
    }
    if (!why.empty()) {
      refuse(arrival.socket, why);
      throw BackendError(why);  // the job cannot come to be
    }
    members_[seat] = member;
    links_[seat].socket = std::move(arrival.socket);
  }

  static void refuse(Socket& socket, const std::string& why) {
    if (!socket) return;
    send_all(socket, encode(FrameKind::refusal, "", why));
    socket.end_sending();
  }

  const Introduction& self_;
  std::vector<Member> members_;
  std::vector<ControlLink> links_;  ///< by rank
  const std::string where_;
  Door door_;
};

constexpr std::uint32_t kMagic = 0x46534442;
constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr std::size_t kMostChunksAtOnce = 64;  // one busy sender must not keep the others waiting

struct Header {
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint64_t topic_bytes = 0;
  std::uint64_t payload_bytes = 0;
};

template <typename T>
T read_as(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void append_bytes(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::vector<Door::Arrival> Door::let_in(std::vector<pollfd> others) {
  others.push_back({listener_.fd(), POLLIN, 0});
  for (const Guest& guest : guests_) others.push_back({guest.socket.fd(), POLLIN, 0});
  (void)::poll(others.data(), others.size(), kPollMs);
  std::vector<Arrival> arrivals;
  guests_.remove_if([&](Guest& guest) { return settled(guest, arrivals); });
  for (int accepted = 0; accepted < kMostAcceptedAtOnce; ++accepted) {
    Socket socket = accept_from(listener_);
    if (!socket) break;
    if (guests_.size() >= kMostGuests) {
      turn_away(guests_.front(), "said nothing while others wanted to come in");
      guests_.pop_front();
    }
    Guest& guest =
        guests_.emplace_back(Guest{std::move(socket), deadline_in(kGuestSeconds), FrameReader(kMostGuestBytes)});
    // Room for so little is always there; if it is not, the guest's time will be over.
    (void)guest.socket.send(kProtocol.data(), kProtocol.size());
  }
  return arrivals;
}

/// True if nothing more is to be done with this guest: let in, turned away or gone.
bool Door::settled(Guest& guest, std::vector<Arrival>& arrivals) {
  try {
    const bool gone = guest.reader.take(guest.socket).closed;
    const std::optional<Frame> hello = guest.reader.next();
    if (!hello && (gone || !is_over(guest.until))) return gone;
    if (!hello) return turn_away(guest, fmt::format("has not said hello within {:g} s", kGuestSeconds));
    const std::vector<std::string> texts = unpack(hello->payload);
    if (texts.size() != 3 || !same_secret(secret_, texts[0]) || texts[1] != purpose_) {
      return turn_away(guest, "does not have this job's secret");
    }
    if (secret_.empty() && !peer_is_this_user(guest.socket.fd())) return turn_away(guest, "is of another user");
    send_all(guest.socket, kWelcome);
    arrivals.push_back({std::move(guest.socket), texts[2]});
    return true;
  } catch (const BackendError&) {
    return turn_away(guest, "does not speak fsdpbench's protocol");
  }
}

/// Nothing that it said is repeated.
bool Door::turn_away(Guest& guest, const std::string& why) {
  last_stranger_ = fmt::format("a process at {} that {}", guest.socket.peer_address(), why);
  strangers_.insert(last_stranger_);
  const std::string last = "it " + why + "\n";
  (void)guest.socket.send(last.data(), last.size());
  guest.socket.end_sending();
  return true;
}

std::string Door::strangers() const {
  if (strangers_.empty()) return "";
  return fmt::format("; it has turned away {}{}", last_stranger_,
                     strangers_.size() > 1 ? fmt::format(" and {} more", strangers_.size() - 1) : "");
}

Socket knock(const std::string& host, int port, const std::string& secret, const std::string& purpose,
             const std::string& text, Deadline deadline, std::string& error, const std::function<bool()>& stopped) {
  Socket socket = connect_to(host, port, deadline, error, stopped);
  if (!socket) return {};
  const std::string greeting = receive_all(socket, kProtocol.size(), deadline, stopped);
  if (greeting != kProtocol) {
    error = greeting.empty() ? "it says nothing: something else may be listening there"
                             : "it does not speak fsdpbench's protocol, or that of another version";
    return {};
  }
  if (secret.empty() && !peer_is_this_user(socket.fd())) {
    error = "whoever listens there is of another user, or the system does not say of whom";
    return {};
  }
  send_all(socket, encode(FrameKind::hello, "", pack({secret, purpose, text})));
  if (receive_all(socket, kWelcome.size(), deadline, stopped) == kWelcome) return socket;
  error = secret.empty() ? "whoever listens there is of another job, or FSDPBENCH_SECRET is set there and not here"
                         : "whoever listens there does not have this job's secret, or another one";
  return {};
}

std::string describe(int rank, const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", rank, member.host, member.pid);
}

Joined take_in_all(Socket listener, const Introduction& self, const std::string& secret, Deadline deadline) {
  return Reception(std::move(listener), self, secret).take_in_all(deadline);
}

std::optional<Joined> ask_to_join(const std::string& host, int port, const Introduction& self,
                                  const std::string& secret, Deadline deadline, std::string& reason) {
  ControlLink link;
  link.socket = knock(
      host, port, secret, purpose_of(self.job),
      pack({self.version, std::to_string(self.rank), std::to_string(self.ranks), self.host, std::to_string(self.pid)}),
      std::min(deadline, deadline_in(kConnectSeconds)), reason);
  if (!link.socket) return std::nullopt;
  std::optional<Frame> answer;
  for (bool closed = false; !answer && !closed && !is_over(deadline); answer = link.reader.next()) {
    wait_for(link.socket, POLLIN);
    closed = link.reader.take(link.socket).closed;
    reason = closed ? "it has ended before all ranks had come" : "it answers, but the other ranks have not all come";
  }
  if (!answer) return std::nullopt;
  if (answer->kind == FrameKind::refusal) throw Refused(answer->payload);
  const std::vector<std::string> texts = unpack(answer->payload);
  if (texts.size() != 1 + 3 * static_cast<std::size_t>(self.ranks)) throw Refused("rank 0's list of ranks is cut off");
  Joined joined{{}, texts[0], {}, {}};
  for (std::size_t i = 1; i < texts.size(); i += 3) {
    joined.members.push_back({texts[i], std::stol(texts[i + 1]), texts[i + 2]});
  }
  joined.links.push_back(std::move(link));
  return joined;
}

std::string encode(FrameKind kind, std::string_view topic, std::string_view payload) {
  if (topic.size() > kMostTopicBytes || payload.size() > kMostPayloadBytes) {
    throw BackendError(fmt::format("a control message has a topic of {} bytes (at most {}) and {} bytes (at most {})",
                                   topic.size(), kMostTopicBytes, payload.size(), kMostPayloadBytes));
  }
  std::string bytes;
  bytes.reserve(sizeof(Header) + topic.size() + payload.size());
  append_bytes(bytes, Header{kMagic, static_cast<std::uint32_t>(kind), topic.size(), payload.size()});
  bytes.append(topic).append(payload);
  return bytes;
}

Socket::Moved FrameReader::take(Socket& socket) {
  Socket::Moved all;
  // A guest's bytes beyond its one frame need not be read.
  const std::size_t most_chunks = most_payload_bytes_ == kMostPayloadBytes ? kMostChunksAtOnce : 1;
  for (std::size_t chunk = 0; chunk < most_chunks; ++chunk) {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kChunk);
    Socket::Moved moved = socket.receive(buffer_.data() + before, kChunk);
    buffer_.resize(before + moved.bytes);
    all.bytes += moved.bytes;
    all.closed = moved.closed;
    all.error = std::move(moved.error);
    if (moved.bytes == 0) break;
  }
  return all;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view bytes = std::string_view(buffer_).substr(done_);
  if (bytes.size() < sizeof(Header)) return std::nullopt;
  const auto header = read_as<Header>(bytes, 0);
  const bool known = header.kind >= static_cast<std::uint32_t>(FrameKind::hello) &&
                     header.kind <= static_cast<std::uint32_t>(FrameKind::goodbye);
  if (header.magic != kMagic || !known || header.topic_bytes > kMostTopicBytes ||
      header.payload_bytes > most_payload_bytes_) {
    throw BackendError("it does not speak fsdpbench's protocol");
  }
  const std::size_t size = sizeof(Header) + header.topic_bytes + header.payload_bytes;
  if (bytes.size() < size) return std::nullopt;
  Frame frame{static_cast<FrameKind>(header.kind), std::string(bytes.substr(sizeof(Header), header.topic_bytes)),
              std::string(bytes.substr(sizeof(Header) + header.topic_bytes, header.payload_bytes))};
  done_ += size;
  if (done_ == buffer_.size() || done_ > kChunk) {
    buffer_.erase(0, done_);
    done_ = 0;
  }
  return frame;
}

std::string pack(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    append_bytes(bytes, std::uint64_t{text.size()});
    bytes += text;
  }
  return bytes;
}

std::vector<std::string> unpack(std::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    constexpr std::size_t kHead = sizeof(std::uint64_t);
    if (bytes.size() < kHead || read_as<std::uint64_t>(bytes, 0) > bytes.size() - kHead) {
      throw BackendError("a control message is cut off");
    }
    const auto size = read_as<std::uint64_t>(bytes, 0);
    texts.emplace_back(bytes.substr(kHead, size));
    bytes.remove_prefix(kHead + size);
  }
  return texts;
}

}  // namespace fsdpbench::launch
