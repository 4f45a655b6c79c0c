#include "base/student.h"

#include <cmath>
#include <numbers>

namespace fsdpbench {

double student_quantile(double tail, int freedom) {
  // P(|t| <= x): the cosine of the angle whose tangent is x / sqrt(freedom), in finite sums.
  const auto outside = [freedom](double x) {
    const double angle = std::atan(x / std::sqrt(freedom)), cosine = std::cos(angle), sine = std::sin(angle);
    const bool odd = freedom % 2 == 1;
    double term = odd ? cosine : 1, sum = freedom == 1 ? 0 : term;
    for (int k = odd ? 3 : 2; k <= freedom - 2; k += 2) {
      term *= cosine * cosine * (k - 1) / k;
      sum += term;
    }
    const double inside = odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
    return (1 - inside) / 2;
  };
  double low = 0, high = 1;
  while (outside(high) > tail && high < 1e9) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (outside(middle) > tail ? low : high) = middle;
  }
  return high;
}

}  // namespace fsdpbench
