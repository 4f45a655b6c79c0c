#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace fsdpbench {

/// An emulated link: a transfer takes latency * hops + wire bytes / bandwidth on the rank's link.
struct LinkModel {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

/// A link whose k active flows get 1/k of its bandwidth each (fluid fair sharing). The one model of a shared link: the
/// emulated link of the CPU backend and the replay are uses of it. Time is nanoseconds of any clock; what flows is
/// counted in bytes, or in anything else that `rate` is given in. `Name` is how the user tells flows apart: copyable,
/// comparable. Not thread-safe.
template <typename Name>
class FluidLink {
 public:
  struct Flow {
    Name name;
    double active_ns = 0;  ///< it begins to flow
    double left = 0;
  };

  /// `rate`: of a flow that has the link to itself, a nanosecond.
  explicit FluidLink(double rate = 1) : rate_(rate) {}

  double rate() const { return rate_; }
  double now_ns() const { return now_ns_; }
  const std::vector<Flow>& flows() const { return flows_; }
  /// Everything that was to flow until now_ns() has. A flow may become active before now_ns(): it begins now.
  void add(Flow flow) { flows_.push_back(std::move(flow)); }

  /// Lets time go on to `until_ns`, or to the last end for infinity; never back. `ended(flow, end_ns)` is told each
  /// flow that ends, in order of time.
  template <typename Ended>
  void advance(double until_ns, Ended&& ended) {
    while (drop_finished(ended), !flows_.empty() && now_ns_ < until_ns) run_to_next_change(until_ns);
    if (until_ns < std::numeric_limits<double>::infinity()) now_ns_ = std::max(now_ns_, until_ns);
  }

  /// When the first flow ends if none is added; infinity without flows.
  double first_end_ns() const {
    if (flows_.size() == 1) {  // as below, without a copy
      const double begin = std::max(now_ns_, flows_.front().active_ns);
      return flows_.front().left <= kRounding ? begin : begin + flows_.front().left / rate_;
    }
    FluidLink copy = *this;
    bool ends = false;
    const auto ended = [&](const Flow&, double) { ends = true; };
    while (copy.drop_finished(ended), !ends && !copy.flows_.empty()) {
      copy.run_to_next_change(std::numeric_limits<double>::infinity());
    }
    return ends ? copy.now_ns_ : std::numeric_limits<double>::infinity();
  }

 private:
  /// Rounding may leave this much of a flow that is over: a thousandth of a byte, or of a nanosecond.
  static constexpr double kRounding = 1e-3;

  template <typename Ended>
  void drop_finished(Ended& ended) {
    std::erase_if(flows_, [&](const Flow& flow) {
      const bool over = flow.active_ns <= now_ns_ && flow.left <= kRounding;
      if (over) ended(flow, now_ns_);
      return over;
    });
  }

  /// Lets it flow until a flow becomes active, the first one ends, or `until_ns`.
  void run_to_next_change(double until_ns) {
    double next = until_ns;
    double least = std::numeric_limits<double>::infinity();
    double active = 0;
    for (const Flow& flow : flows_) {
      if (flow.active_ns > now_ns_) {
        next = std::min(next, flow.active_ns);
      } else {
        least = std::min(least, flow.left);
        active += 1;
      }
    }
    const double share = rate_ / std::max(active, 1.0);
    const double first_end = now_ns_ + least / share;
    const bool ends = active > 0 && first_end <= next;
    const double gone = ends ? least : (next - now_ns_) * share;
    for (Flow& flow : flows_) {
      if (flow.active_ns <= now_ns_) flow.left -= gone;
    }
    now_ns_ = ends ? first_end : next;
  }

  double rate_;
  double now_ns_ = 0;
  std::vector<Flow> flows_;
};

}  // namespace fsdpbench
