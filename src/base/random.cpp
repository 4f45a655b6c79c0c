#include "base/random.h"

#include <cmath>

namespace fsdpbench {

double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= kCentralQuantiles) return central_normal_quantile(q);
  const double tail = std::sqrt(-std::log(q < 0 ? p : 1.0 - p));
  double x = 0;
  if (tail <= 5.0) {
    const double r = tail - 1.6;
    x = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
        ((0.12021132975 * r + 0.73700164250) * r + 1.0);
  } else {
    const double r = tail - 5.0;
    x = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
        ((0.012258202635 * r + 0.24197894225) * r + 1.0);
  }
  return q < 0 ? -x : x;
}

}  // namespace fsdpbench
