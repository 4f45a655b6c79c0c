#pragma once

namespace fsdpbench {

/// An emulated link: a transfer takes latency * hops + wire bytes / bandwidth on the rank's link.
struct LinkModel {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

}  // namespace fsdpbench
