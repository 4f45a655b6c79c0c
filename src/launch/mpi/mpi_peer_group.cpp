#include "launch/mpi/mpi_peer_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "launch/mpi/check.h"

namespace fsdpbench::launch {
namespace {

constexpr int kTag = 1;
/// MPI counts in int: a longer message goes in pieces, which MPI keeps in order.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
/// From here on MPI may move a message in several steps, each of which waits for a call.
constexpr std::size_t kLargeBytes = 4096;

/// Calls `piece(offset, bytes)` for every piece of a message; an empty message is one empty piece.
template <typename Piece>
void in_pieces(std::size_t bytes, const Piece& piece) {
  std::size_t offset = 0;
  do {
    const std::size_t size = std::min(bytes - offset, kMostBytes);
    piece(offset, static_cast<int>(size));
    offset += size;
  } while (offset < bytes);
}

}  // namespace

MpiPeerGroup::MpiPeerGroup(const ControlChannel& control, MPI_Comm communicator)
    : control_(control), communicator_(communicator) {
  check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "to set up a group");
  check_mpi(MPI_Comm_rank(communicator_, &rank_), "to set up a group");
  check_mpi(MPI_Comm_size(communicator_, &size_), "to set up a group");
}

MpiPeerGroup::~MpiPeerGroup() {
  // After a failure the others may not free it any more, and MPI might wait for them.
  if (!broken_ && !control_.failure()) (void)MPI_Comm_free(&communicator_);
}

void MpiPeerGroup::exchange(std::span<const Send> sends, std::span<const Receive> receives,
                            const std::function<bool()>& stopped) {
  struct Expected {
    int from;
    int bytes;
  };
  std::vector<MPI_Request> requests;
  std::vector<Expected> expected;
  const bool large = std::ranges::any_of(sends, [](const Send& send) { return send.bytes.size() >= kLargeBytes; }) ||
                     std::ranges::any_of(receives, [](const Receive& r) { return r.bytes.size() >= kLargeBytes; });
  broken_ = true;  // unless all goes well
  for (const Receive& receive : receives) {
    check_peer(receive.from);
    in_pieces(receive.bytes.size(), [&](std::size_t offset, int bytes) {
      expected.push_back({receive.from, bytes});
      check_mpi(MPI_Irecv(receive.bytes.data() + offset, bytes, MPI_BYTE, receive.from, kTag, communicator_,
                          &requests.emplace_back(MPI_REQUEST_NULL)),
                "to receive");
    });
  }
  for (const Send& send : sends) {
    check_peer(send.to);
    in_pieces(send.bytes.size(), [&](std::size_t offset, int bytes) {
      check_mpi(MPI_Isend(send.bytes.data() + offset, bytes, MPI_BYTE, send.to, kTag, communicator_,
                          &requests.emplace_back(MPI_REQUEST_NULL)),
                "to send");
    });
  }
  const std::vector<MPI_Status> statuses = wait_all(requests, control_, stopped, "to exchange bytes", large);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes), "to count bytes");
    if (bytes != expected[i].bytes) {
      throw BackendError(fmt::format("rank {} of a group sends {} bytes where rank {} expects {}", expected[i].from,
                                     bytes, rank_, expected[i].bytes));
    }
  }
  broken_ = false;
}

std::unique_ptr<PeerGroup> MpiPeerGroup::split(int color, int key, const std::function<bool()>& stopped) {
  // MPI_Comm_split cannot be stopped: all must have come before it is called.
  broken_ = true;
  std::vector<MPI_Request> arrived(1);
  check_mpi(MPI_Ibarrier(communicator_, arrived.data()), "to split a group");
  wait_all(arrived, control_, stopped, "to split a group");
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(communicator_, color, key, &part), "to split a group");
  broken_ = false;
  return std::make_unique<MpiPeerGroup>(control_, part);
}

void MpiPeerGroup::check_peer(int peer) const {
  if (peer >= 0 && peer < size_ && peer != rank_) return;
  throw BackendError(fmt::format("rank {} of a group of {} cannot exchange bytes with rank {}", rank_, size_, peer));
}

}  // namespace fsdpbench::launch
