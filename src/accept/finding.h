#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accept/element.h"
#include "accept/robust.h"
#include "account/run_view.h"

namespace fsdpbench::accept {

/// A part that is slower than its peers by less is healthy.
inline constexpr double kLeastShortfall = 0.05;

/// Somebody who is to blame, or something that came and went.
struct Finding {
  enum class Kind : std::uint8_t {
    slow,         ///< persistently: in the first measurement and in its confirmation
    half_duplex,  ///< each direction alone is as fast as others', both at once are not
    lost,         ///< killed, crashed, hung, or not there: nothing of it could be measured
    transient,    ///< it was slow for a while; nobody is accused
    collision,    ///< as slow as flows that switches always put on one path, by their addresses; nobody is accused
    unclear,      ///< slow, and the pairs do not tell whose fault that is; nobody is accused
  };
  Element element;
  Kind kind = Kind::slow;
  double shortfall = 0;     ///< by which it is below the median of its peers: 0.1 is 10 %; of a transient the deepest
  Interval relative;        ///< its figure over the median of its peers
  std::string evidence;     ///< a sentence: what was measured against what
  std::string check;        ///< what to look at next
  std::string direction{};  ///< "sends" or "receives": it is slow in this direction only; empty: in both
  bool on_cores = false;    ///< what it rests on was done by processors, which other programs may have taken meanwhile
  std::string figure{};     ///< of the judgement that it is: what was compared among peers

  bool accuses() const { return kind <= Kind::lost; }
};

/// The collectives of one step: when each rank came to them, and how long they took once all had; sums of several.
struct Arrivals {
  std::vector<double> arrival_us;  ///< by rank, on one clock, since the step began or the collective before was over
  double transfer_us = 0;          ///< from the last arrival to the end
};

/// Split of time in collectives: waiting for somebody, or moving bytes.
struct LatenessReport {
  std::optional<Finding> late;     ///< the rank that the others wait for; absent: nobody in particular
  std::vector<double> last_share;  ///< by rank, of the samples in which it came last
  Interval waiting_us;             ///< from the median arrival to the last one
  Interval transfer_us;
  bool in_turn = false;  ///< all wait for long, now for one and now for another
  std::string sentence;
};

/// The reductions of each step that computes and reduces gradients: a rank comes to one when it has computed the
/// gradients, however far ahead its gathers were issued. What it waited for a core (other work, or other ranks, had it)
/// is not its lateness. `run`: of all ranks.
std::vector<Arrivals> arrivals_of(const account::RunView& run);

/// A rank is to blame if it comes last in more than half of the samples for certain (binomial, 1 %), and where it does
/// by more than `least` of the time from the step's begin to the collective's end (95 % interval of the median). Chance
/// makes everybody last in turn, and the slowest of healthy GPUs, which differ by up to 5 %, is last for good, but not
/// by much. All samples have cluster.ranks() arrivals. Fewer than kFewestToBeLate ranks are not compared.
LatenessReport blame_lateness(const Cluster& cluster, const std::vector<Arrivals>& samples, double least = 0.05);

/// One of two ranks is always last.
inline constexpr int kFewestToBeLate = 3;

}  // namespace fsdpbench::accept
