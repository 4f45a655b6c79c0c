#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "backend/cpu/lane_worker.h"
#include "backend/cpu/peers.h"

namespace fsdpbench::backend::cpu {

class CpuDevice;

/// One rank's side of a Group: puts collectives on the device's lanes and keeps them in issue order.
/// May be destroyed while its collectives are still queued.
class CpuCommunicator : public Communicator {
 public:
  /// `device` must outlive this.
  CpuCommunicator(CpuDevice& device, std::shared_ptr<Group> group, int rank);

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  void enqueue(Lane lane, const CollectiveCall& call, Stamp* stamp) override;
  void barrier() override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  const WireBytes& wire_bytes() const override { return wire_bytes_; }

 private:
  /// Lets one collective after the other pass, in the order of their numbers. Shared with the queued collectives.
  class Turnstile;

  CpuDevice& device_;
  std::shared_ptr<Group> group_;
  int rank_;
  std::int64_t issued_ = 0;
  std::shared_ptr<Turnstile> turnstile_;
  WireBytes wire_bytes_{};
};

/// Lanes are threads. Ranks are threads of this process and communicate through its memory or, with a session, one a
/// process: those of one host communicate through memory that they share, if they can, the others by messages.
class CpuBackend : public Backend {
 public:
  /// `kernels` makes the kernels of each lane of each rank, on the lane's own thread.
  explicit CpuBackend(KernelsFactory kernels) : kernels_(std::move(kernels)) {}

  std::string name() const override { return "cpu"; }
  Facts facts() const override;
  /// With a session `body` runs on the calling thread, and a failure of another process is thrown as a BackendError.
  void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) override;

 private:
  KernelsFactory kernels_;
  std::string ranks_ = "threads of one process";  ///< of the latest run
};

}  // namespace fsdpbench::backend::cpu
