#pragma once

#include "config/accuracy.h"
#include "config/cluster.h"
#include "replay/op_times.h"
#include "replay/uncertainty.h"
#include "schedule/training.h"

namespace fsdpbench::app {

/// Of op times that come from published rates: computation is off by what trainings are, each collective by what those
/// of its sort are. Nothing was measured on the machine itself, so the best that an op can be is interpolated: its
/// cluster has rows, and its ranks and bytes lie within theirs. `times`: engine::simulated_times().
replay::Uncertainty published_uncertainty(const schedule::Training& training, const config::Cluster& cluster,
                                          const config::Accuracy& accuracy, const replay::OpTimes& times);

}  // namespace fsdpbench::app
