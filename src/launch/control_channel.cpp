#include "launch/control_channel.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/clock.h"
#include "launch/run_ranks.h"

namespace fsdpbench::launch {

ExitCode job_code(const std::exception_ptr& failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const ConfigError& error) {
    return error.code();
  } catch (...) {  // whatever it is, a rank has failed
  }
  return ExitCode::rank_failed;
}

std::vector<std::string> gather(ControlChannel& channel, std::string_view topic, std::string mine) {
  if (channel.rank() != 0) {
    channel.send(0, topic, std::move(mine));
    return {};
  }
  std::vector<std::string> all{std::move(mine)};
  for (int rank = 1; rank < channel.size(); ++rank) all.push_back(channel.receive(rank, topic));
  return all;
}

std::string broadcast(ControlChannel& channel, std::string_view topic, std::string from_root) {
  if (channel.rank() != 0) return channel.receive(0, topic);
  for (int rank = 1; rank < channel.size(); ++rank) channel.send(rank, topic, from_root);
  return from_root;
}

void barrier(ControlChannel& channel) {
  (void)gather(channel, "barrier", {});
  (void)broadcast(channel, "barrier", {});
}
namespace {

constexpr double kSecond = 1e9;
constexpr int kWaitMs = 100;
constexpr double kFarewellSeconds = 3;
constexpr double kRootSeconds = 15;
// Fate of a rank, in a failure message.
constexpr const char* kDied = "died";
constexpr const char* kFailed = "failed";
constexpr const char* kRefused = "refused";

std::int64_t ns(double seconds) { return static_cast<std::int64_t>(seconds * kSecond); }

/// "rank 2 (host x, pid y): message", but not twice.
std::string by_rank(int rank, const Member& member, const std::string& message) {
  const std::string name = fmt::format("rank {}", rank);
  const bool named =
      message.starts_with(name) && (message.size() == name.size() || !std::isdigit(message[name.size()]));
  return named ? message : fmt::format("{}: {}", describe(rank, member), message);
}

}  // namespace

TcpControlChannel::TcpControlChannel(int rank, Joined joined, Heartbeat heartbeat)
    : rank_(rank),
      members_(std::move(joined.members)),
      heartbeat_(heartbeat),
      wakeup_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      beaten_ns_(now_ns()),
      looked_ns_(beaten_ns_) {
  if (!wakeup_) throw BackendError("the control channel gets no event descriptor: too many files are open");
  for (std::size_t i = 0; i < joined.links.size(); ++i) {
    if (!joined.links[i].socket) continue;
    Peer peer;
    peer.rank = static_cast<int>(i);  // at rank 0 the links are by rank; elsewhere there is one, to rank 0
    peer.link = std::move(joined.links[i]);
    peer.heard_ns = beaten_ns_;
    peers_.push_back(std::move(peer));
  }
  thread_ = std::thread([this] { run(); });
}

TcpControlChannel::~TcpControlChannel() {
  {
    std::unique_lock lock(mutex_);
    if (failure_ && rank_ != 0) wait_for_root(lock);
    ending_ = true;
    end_ = deadline_in(kFarewellSeconds);
    for (Peer& peer : peers_) put(peer, FrameKind::goodbye, "", "");
    wake();
  }
  thread_.join();
}

void TcpControlChannel::wait_for_root(std::unique_lock<std::mutex>& lock) {
  const Deadline deadline = deadline_in(kRootSeconds);
  const Peer& root = peer(0);
  const auto ended = [&] { return root.said_goodbye || !root.link.socket; };
  while (!ended() && std::chrono::steady_clock::now() < deadline)
    changed_.wait_for(lock, std::chrono::milliseconds(kWaitMs));
}

void TcpControlChannel::send(int to, std::string_view topic, std::string payload) {
  const std::lock_guard lock(mutex_);
  put(peer(to), FrameKind::message, topic, payload);
  wake();
}

std::string TcpControlChannel::receive(int from, std::string_view topic) {
  std::unique_lock lock(mutex_);
  Peer& sender = peer(from);
  for (;;) {
    if (std::optional<std::string> payload = take(sender, topic)) return std::move(*payload);
    if (failure_) throw Stopped(failure_->message);
    if (sender.said_goodbye) {
      throw BackendError(fmt::format("{} has ended and sent no message '{}'", describe(from, members_[from]), topic));
    }
    changed_.wait(lock);
  }
}

std::optional<std::string> TcpControlChannel::poll(int from, std::string_view topic) {
  const std::lock_guard lock(mutex_);
  return take(peer(from), topic);
}

void TcpControlChannel::fail(const std::string& message, ExitCode code) {
  const std::lock_guard lock(mutex_);
  set_failure({rank_, false, by_rank(rank_, members_[rank_], message), code});
  wake();
}

std::optional<JobFailure> TcpControlChannel::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void TcpControlChannel::on_failure(std::function<void(const JobFailure&)> listener) {
  std::unique_lock lock(mutex_);
  listener_ = std::move(listener);
  listener_called_ = false;
  wake();
  if (std::this_thread::get_id() != thread_.get_id()) changed_.wait(lock, [this] { return !in_listener_; });
}

TcpControlChannel::Peer& TcpControlChannel::peer(int rank) {
  const auto found = std::ranges::find(peers_, rank, &Peer::rank);
  if (found == peers_.end()) {
    throw BackendError(fmt::format("rank {} has no control connection to rank {} of {}", rank_, rank, size()));
  }
  return *found;
}

void TcpControlChannel::put(Peer& peer, FrameKind kind, std::string_view topic, std::string_view payload) {
  if (!peer.link.socket) return;  // it has ended: nobody would read it
  peer.out += encode(kind, topic, payload);
  flush(peer);
}

void TcpControlChannel::flush(Peer& peer) {
  std::size_t done = 0;
  while (done < peer.out.size()) {
    const Socket::Moved moved = peer.link.socket.send(peer.out.data() + done, peer.out.size() - done);
    done += moved.bytes;
    if (moved.closed) done = peer.out.size();  // what it may have sent before is still to be read: read() decides
    if (moved.bytes == 0) break;
  }
  peer.out.erase(0, done);
}

void TcpControlChannel::read(Peer& peer) {
  const Socket::Moved moved = peer.link.reader.take(peer.link.socket);
  if (moved.bytes > 0) peer.heard_ns = now_ns();
  // It still talks to this one, and not with what lay there to be read: nobody has been given up.
  const bool talks = moved.bytes > 0 && !moved.closed;
  if (talks && peer.heard_ns - returned_ns_ > 2 * ns(heartbeat_.interval_s)) absent_ns_ = 0;
  const std::string who = describe(peer.rank, members_[peer.rank]);
  try {
    while (std::optional<Frame> frame = peer.link.reader.next()) handle(peer, std::move(*frame));
  } catch (const BackendError& e) {
    peer.link.socket.close();
    set_failure({peer.rank, true, fmt::format("{} sent garbage: {}", who, e.what())});
    return;
  }
  if (!moved.closed) return;
  peer.link.socket.close();
  notice_own_absence(now_ns());  // it may have been since this turn began
  if (!peer.said_goodbye && !ending_ && absent_ns_ > 0) {
    // They closed because nothing came from here: it is this process that was gone.
    set_failure({rank_, false,
                 fmt::format("{} was stopped for {:.1f} s, and the others have gone on without it",
                             describe(rank_, members_[rank_]), static_cast<double>(absent_ns_) / kSecond)});
  } else if (!peer.said_goodbye && !ending_) {
    set_failure({peer.rank, true, fmt::format("{} has ended without a word: it was killed or has crashed", who)});
  }
}

void TcpControlChannel::handle(Peer& peer, Frame frame) {
  if (frame.kind == FrameKind::message) peer.inbox[frame.topic].push_back(std::move(frame.payload));
  if (frame.kind == FrameKind::goodbye) peer.said_goodbye = true;
  if (frame.kind == FrameKind::failure) {
    const std::vector<std::string> texts = unpack(frame.payload);
    int rank = -1;
    if (texts.size() != 3 ||
        std::from_chars(texts[0].data(), texts[0].data() + texts[0].size(), rank).ec != std::errc{}) {
      throw BackendError("a failure message is cut off");
    }
    set_failure(
        {rank, texts[1] == kDied, texts[2], texts[1] == kRefused ? ExitCode::bad_input : ExitCode::rank_failed});
  }
}

void TcpControlChannel::set_failure(const JobFailure& failure) {
  if (failure_) return;
  failure_ = failure;
  const char* const how = failure.died ? kDied : failure.code == ExitCode::bad_input ? kRefused : kFailed;
  const std::string payload = pack({std::to_string(failure.rank), how, failure.message});
  for (Peer& peer : peers_) put(peer, FrameKind::failure, "", payload);
}

void TcpControlChannel::send_heartbeats(std::int64_t now) {
  if (now - beaten_ns_ < ns(heartbeat_.interval_s)) return;
  beaten_ns_ = now;
  for (Peer& peer : peers_) {
    if (peer.out.empty()) put(peer, FrameKind::heartbeat, "", "");
  }
}

// A process that was stopped for a while (SIGSTOP, a sleeping host) must not take what the others did meanwhile for
// their failure: what they sent is only now being read, and they may have closed because it was silent.
void TcpControlChannel::notice_own_absence(std::int64_t now) {
  const std::int64_t absent = now - looked_ns_;
  looked_ns_ = now;
  if (absent <= ns(heartbeat_.silence_s) / 3) return;
  for (Peer& peer : peers_) peer.heard_ns = now;
  if (absent > ns(heartbeat_.silence_s) / 2) {
    absent_ns_ = absent;
    returned_ns_ = now;
  }
}

void TcpControlChannel::notice_silence(std::int64_t now) {
  for (Peer& peer : peers_) {
    if (!peer.link.socket || peer.said_goodbye || now - peer.heard_ns < ns(heartbeat_.silence_s)) continue;
    peer.link.socket.close();
    set_failure({peer.rank, true,
                 fmt::format("{} has been silent for {:g} s: its host or the network to it is gone, or it was stopped",
                             describe(peer.rank, members_[peer.rank]), heartbeat_.silence_s)});
  }
}

void TcpControlChannel::call_listener(std::unique_lock<std::mutex>& lock) {
  if (!failure_ || !listener_ || listener_called_) return;
  listener_called_ = true;
  in_listener_ = true;
  const std::function<void(const JobFailure&)> listener = listener_;
  const JobFailure failure = *failure_;
  lock.unlock();
  listener(failure);
  lock.lock();
  in_listener_ = false;
  changed_.notify_all();
}

void TcpControlChannel::close_what_is_done() {
  for (Peer& peer : peers_) {
    if (!peer.link.socket || !peer.out.empty()) continue;
    if (peer.said_goodbye) {
      peer.link.socket.close();
    } else if (ending_) {
      peer.link.socket.end_sending();  // it closes its side when it has read all of it
    }
  }
}

bool TcpControlChannel::open() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) { return static_cast<bool>(peer.link.socket); });
}

std::optional<std::string> TcpControlChannel::take(Peer& peer, std::string_view topic) {
  const auto queue = peer.inbox.find(topic);
  if (queue == peer.inbox.end()) return std::nullopt;
  std::string payload = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) peer.inbox.erase(queue);
  return payload;
}

void TcpControlChannel::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wakeup_.fd(), &one, sizeof one);
}

void TcpControlChannel::wait_for_news() {
  std::vector<pollfd> watched{{wakeup_.fd(), POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const Peer& peer : peers_) {
      if (!peer.link.socket) continue;
      const int events = POLLIN | (peer.out.empty() ? 0 : POLLOUT);
      watched.push_back({peer.link.socket.fd(), static_cast<short>(events), 0});
    }
  }
  (void)::poll(watched.data(), watched.size(), kWaitMs);
  std::uint64_t count = 0;
  (void)!::read(wakeup_.fd(), &count, sizeof count);
}

void TcpControlChannel::run() {
  for (;;) {
    wait_for_news();
    std::unique_lock lock(mutex_);
    // One time for the whole turn: were the clock read again for notice_silence, a stop in between would pass for the
    // others' silence.
    const std::int64_t now = now_ns();
    notice_own_absence(now);
    for (Peer& peer : peers_) {
      if (peer.link.socket) read(peer);
      if (peer.link.socket) flush(peer);
    }
    send_heartbeats(now);
    notice_silence(now);
    changed_.notify_all();
    call_listener(lock);
    close_what_is_done();
    if (ending_ && (!open() || std::chrono::steady_clock::now() > end_)) return;
  }
}

}  // namespace fsdpbench::launch
