#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "config/run_config.h"

namespace fsdpbench::account {

/// Why training has diverged, as a sentence: a loss that is NaN or infinite, or `not_finite` > 0 elements of the final
/// parameters that are; empty if all are finite. `losses` are those of each step, warm-up included.
std::string why_diverged(std::span<const double> losses, std::int64_t not_finite);

/// Why a training with so many such elements has no digest of its parameters, as a sentence; empty if it has one.
std::string why_no_digest(const config::RunConfig& config, std::int64_t not_finite);

/// A loss as people read it: "4.2186", "NaN", "infinite".
std::string loss_text(double loss);

}  // namespace fsdpbench::account
