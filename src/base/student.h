#pragma once

namespace fsdpbench {

/// The value that Student's t of `freedom` degrees exceeds with the probability `tail`, 0 < tail < 0.5 and freedom >= 1. By bisection of
/// the finite sums in Abramowitz and Stegun, 26.7.3 and 26.7.4.
double student_quantile(double tail, int freedom);

}  // namespace fsdpbench
