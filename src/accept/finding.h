#pragma once

#include <cstdint>
#include <string>

#include "accept/element.h"
#include "accept/robust.h"

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
  };
  Element element;
  Kind kind = Kind::slow;
  double shortfall = 0;   ///< by which it is below the median of its peers: 0.1 is 10 %; of a transient the deepest
  Interval relative;      ///< its figure over the median of its peers
  std::string evidence;   ///< a sentence: what was measured against what
  std::string check;      ///< what to look at next
  std::string direction{};  ///< "sends" or "receives": it is slow in this direction only; empty: in both
  bool on_cores = false;  ///< what it rests on was done by processors, which other programs may have taken meanwhile

  bool accuses() const { return kind != Kind::transient && kind != Kind::collision; }
};

}  // namespace fsdpbench::accept
