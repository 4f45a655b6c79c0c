#pragma once

#include <mpi.h>

#include <memory>

#include "launch/control_channel.h"
#include "launch/peer_group.h"

namespace fsdpbench::launch {

/// A peer group whose bytes travel through MPI. MPI must have been initialised for several threads.
class MpiPeerGroup final : public PeerGroup {
 public:
  /// Takes over `communicator`. `control` outlives the group.
  MpiPeerGroup(const ControlChannel& control, MPI_Comm communicator);
  ~MpiPeerGroup() override;
  MpiPeerGroup(const MpiPeerGroup&) = delete;
  MpiPeerGroup& operator=(const MpiPeerGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void exchange(std::span<const Send> sends, std::span<const Receive> receives,
                const std::function<bool()>& stopped) override;
  std::unique_ptr<PeerGroup> split(int color, int key, const std::function<bool()>& stopped) override;

 private:
  void check_peer(int peer) const;

  const ControlChannel& control_;
  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 0;
  bool broken_ = false;  ///< something was given up half done
};

}  // namespace fsdpbench::launch
