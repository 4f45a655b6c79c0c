#pragma once

#include <string>

#include "backend/cuda/nccl/make_communicator.h"
#include "launch/control_channel.h"

namespace fsdpbench::backend::cuda {

/// The exchange of ranks that are processes of one job.
class SessionExchange : public IdExchange {
 public:
  explicit SessionExchange(launch::ControlChannel& control) : control_(control) {}

  std::string from_root(int /*rank*/, std::string bytes) override {
    return launch::broadcast(control_, "nccl id", std::move(bytes));
  }
  void barrier(int /*rank*/) override { launch::barrier(control_); }

 private:
  launch::ControlChannel& control_;
};

}  // namespace fsdpbench::backend::cuda
