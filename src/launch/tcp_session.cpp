#include "launch/tcp_session.h"

#include <fmt/format.h>

namespace fsdpbench::launch {
namespace {

/// The address of this host by which its control connections go; empty if they go by several.
std::string own_address(const std::vector<ControlLink>& links) {
  std::string address;
  for (const ControlLink& link : links) {
    if (!link.socket) continue;
    const std::string own = link.socket.local_address();
    if (!address.empty() && own != address) return {};
    address = own;
  }
  return address;
}

}  // namespace

TcpSession::TcpSession(Placement placement, Joined joined) : Session(std::move(placement), joined.door) {
  directory_.members = joined.members;
  directory_.token = joined.token;
  directory_.root_address = this->placement().rank == 0 ? "127.0.0.1" : joined.links.at(0).socket.peer_address();
  directory_.own_address = own_address(joined.links);
  control_ = std::make_unique<TcpControlChannel>(this->placement().rank, std::move(joined));
  directory_.control = control_.get();
}

std::unique_ptr<PeerGroup> TcpSession::peers() {
  const std::string id = fmt::format("peers {}", groups_++);
  Socket listener = TcpPeerGroup::open_listener(directory_);
  const std::vector<std::string> ports = gather(*control_, id, std::to_string(listener.local_port()));
  const std::vector<std::string> all = unpack(broadcast(*control_, id, pack(ports)));
  std::vector<TcpPeerGroup::Seat> seats;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    seats.push_back({static_cast<int>(rank), std::stoi(all[rank])});
  }
  return std::make_unique<TcpPeerGroup>(directory_, id, placement().rank, std::move(seats), std::move(listener),
                                        [] { return false; });
}

}  // namespace fsdpbench::launch
