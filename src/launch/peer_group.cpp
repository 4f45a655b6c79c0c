#include "launch/peer_group.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "launch/addresses.h"
#include "launch/run_ranks.h"

namespace fsdpbench::launch {
namespace {

constexpr double kPeersConnectSeconds = 60;
constexpr double kNewsSeconds = 2;

/// Message of members to each other before they part.
struct Ballot {
  std::int64_t color = 0;
  std::int64_t key = 0;
  std::int64_t job_rank = 0;
  std::int64_t port = 0;
};

}  // namespace

const std::string& Directory::address(int job_rank) const {
  const std::string& own = members[job_rank].address;
  return own.empty() ? root_address : own;
}

bool Directory::one_host() const {
  return std::ranges::all_of(members, [](const Member& member) { return member.address.empty(); });
}

/// One message on its way: eight bytes that say its size, then the message.
struct PeerGroup::Flow {
  int peer = 0;
  bool sends = false;
  std::uint64_t size = 0;  ///< sent, or as the sender says
  std::byte* bytes = nullptr;
  std::size_t expected = 0;
  std::size_t done = 0;  ///< of the eight bytes and the message together

  bool finished() const { return done == sizeof size + expected; }
};

Socket PeerGroup::open_listener(const Directory& directory) {
  std::string error;
  Socket listener = listen_at(directory.one_host() ? "127.0.0.1" : directory.own_address, 0, error);
  if (!listener) throw BackendError(fmt::format("cannot listen for the other processes: {}", error));
  return listener;
}

PeerGroup::PeerGroup(const Directory& directory, std::string id, int rank, std::vector<Seat> seats, Socket listener,
                     const std::function<bool()>& stopped)
    : directory_(directory), id_(std::move(id)), rank_(rank), seats_(std::move(seats)), sockets_(seats_.size()) {
  connect_to_lower(stopped);
  accept_higher(std::move(listener), stopped);
}

void PeerGroup::connect_to_lower(const std::function<bool()>& stopped) {
  for (int peer = 0; peer < rank_; ++peer) {
    const Seat& seat = seats_[peer];
    const std::string& address = directory_.address(seat.job_rank);
    std::string error;
    Socket socket = knock(address, seat.port, directory_.token, door_of(peer), std::to_string(rank_),
                          deadline_in(kPeersConnectSeconds), error,
                          [&] { return directory_.control->failure() || (stopped && stopped()); });
    throw_if(stopped);
    if (!socket) lost(peer, fmt::format("cannot connect to {}: {}", endpoint(address, seat.port), error), stopped);
    sockets_[peer] = std::move(socket);
  }
}

void PeerGroup::accept_higher(Socket listener, const std::function<bool()>& stopped) {
  Door door(std::move(listener), directory_.token, door_of(rank_));
  const Deadline deadline = deadline_in(kPeersConnectSeconds);
  const auto missing = [this] {
    return std::find_if(sockets_.begin() + rank_ + 1, sockets_.end(), [](const Socket& s) { return !s; }) -
           sockets_.begin();
  };
  while (missing() < size()) {
    throw_if(stopped);
    if (std::chrono::steady_clock::now() > deadline) {
      lost(static_cast<int>(missing()), "it has not connected within a minute", stopped);
    }
    for (Door::Arrival& arrival : door.let_in()) {
      const std::size_t peer = std::stoul(arrival.said);
      if (peer < sockets_.size()) sockets_[peer] = std::move(arrival.socket);
    }
  }
}

std::string PeerGroup::door_of(int peer) const { return fmt::format("{} of {}", peer, id_); }

void PeerGroup::exchange(std::span<const Send> sends, std::span<const Receive> receives,
                         const std::function<bool()>& stopped) {
  std::vector<Flow> flows;
  flows.reserve(sends.size() + receives.size());
  // A send's bytes are only read; one kind of flow serves both directions.
  for (const Send& send : sends) {
    flows.push_back(
        {send.to, true, send.bytes.size(), const_cast<std::byte*>(send.bytes.data()), send.bytes.size(), 0});
  }
  for (const Receive& receive : receives) {
    flows.push_back({receive.from, false, 0, receive.bytes.data(), receive.bytes.size(), 0});
  }
  std::vector<pollfd> watched;
  for (;;) {
    throw_if(stopped);
    bool moved = false;
    watched.clear();
    for (Flow& flow : flows) {
      if (flow.finished()) continue;
      const Socket::Moved step = move(flow);
      if (step.closed) lost(flow.peer, step.error, stopped);
      moved = moved || step.bytes > 0;
      const short wanted = flow.sends ? POLLOUT : POLLIN;
      if (!flow.finished()) watched.push_back({socket_of(flow.peer).fd(), wanted, 0});
    }
    if (watched.empty()) return;
    if (!moved) (void)::poll(watched.data(), watched.size(), kPollMs);
  }
}

std::unique_ptr<PeerGroup> PeerGroup::split(int color, int key, const std::function<bool()>& stopped) {
  Socket listener = open_listener(directory_);
  std::vector<Ballot> ballots(sockets_.size());
  const std::size_t here = rank_;
  ballots[here] = {color, key, seats_[here].job_rank, listener.local_port()};
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    sends.push_back({peer, std::as_bytes(std::span(&ballots[here], 1))});
    receives.push_back({peer, std::as_writable_bytes(std::span(&ballots[peer], 1))});
  }
  exchange(sends, receives, stopped);

  std::vector<std::size_t> members;
  for (std::size_t peer = 0; peer < ballots.size(); ++peer) {
    if (ballots[peer].color == color) members.push_back(peer);
  }
  std::ranges::stable_sort(members, {}, [&](std::size_t peer) { return ballots[peer].key; });
  std::vector<Seat> seats;
  for (const std::size_t peer : members) {
    seats.push_back({static_cast<int>(ballots[peer].job_rank), static_cast<int>(ballots[peer].port)});
  }
  const auto rank = static_cast<int>(std::ranges::find(members, here) - members.begin());
  std::string id = fmt::format("{}/{}:{}", id_, splits_++, color);
  return std::make_unique<PeerGroup>(directory_, std::move(id), rank, std::move(seats), std::move(listener), stopped);
}

Socket& PeerGroup::socket_of(int peer) {
  if (peer < 0 || peer >= size() || peer == rank_) {
    throw BackendError(fmt::format("rank {} of a group of {} cannot exchange bytes with rank {}", rank_, size(), peer));
  }
  return sockets_[peer];
}

Socket::Moved PeerGroup::move(Flow& flow) {
  Socket& socket = socket_of(flow.peer);
  constexpr std::size_t kHead = sizeof flow.size;
  const bool head = flow.done < kHead;
  std::byte* const at = head ? reinterpret_cast<std::byte*>(&flow.size) + flow.done : flow.bytes + (flow.done - kHead);
  const std::size_t rest = head ? kHead - flow.done : flow.expected - (flow.done - kHead);
  Socket::Moved step = flow.sends ? socket.send(at, rest, head && flow.expected > 0) : socket.receive(at, rest);
  flow.done += step.bytes;
  if (!flow.sends && head && flow.done == kHead && flow.size != flow.expected) {
    throw BackendError(
        fmt::format("{} sends {} bytes where {} expects {}", who(flow.peer), flow.size, who(rank_), flow.expected));
  }
  return step;
}

std::string PeerGroup::who(int peer) const {
  const int job_rank = seats_[peer].job_rank;
  return describe(job_rank, directory_.members[job_rank]);
}

void PeerGroup::lost(int peer, const std::string& error, const std::function<bool()>& stopped) const {
  // The control channel knows why, or will in a moment.
  const Deadline deadline = deadline_in(kNewsSeconds);
  while (std::chrono::steady_clock::now() < deadline) {
    throw_if(stopped);
    std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
  }
  throw BackendError(
      fmt::format("{} lost its connection to {}{}{}", who(rank_), who(peer), error.empty() ? "" : ": ", error));
}

void PeerGroup::throw_if(const std::function<bool()>& stopped) const {
  const std::optional<JobFailure> failure = directory_.control->failure();
  if (failure) throw Stopped(failure->message);
  if (stopped && stopped()) throw Stopped(fmt::format("{} was stopped", who(rank_)));
}

}  // namespace fsdpbench::launch
