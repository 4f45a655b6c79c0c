#pragma once

#include <string>
#include <vector>

#include "account/cause.h"
#include "config/run_config.h"

namespace fsdpbench::account {

/// A key that could be turned from where a configuration has it.
struct Knob {
  Cause cause = Cause::unknown;  ///< that it is meant for
  std::string set;               ///< "key=value", as --set takes it
  config::RunConfig config;      ///< with that value
};

/// One value of each key that shapes communication and could be better than what the configuration has: the next one up
/// of a limit, the mode that prefetches. Whether it is better is for a replay to say.
std::vector<Knob> knobs_of(const config::RunConfig& config);

/// The configuration in which a cause that a knob lifts cannot be: all gathers prefetched, no limit, as many buffers as
/// there are reductions, a communicator for each kind, no injected sync. As it is for any other cause.
config::RunConfig lifted(Cause cause, config::RunConfig config);

}  // namespace fsdpbench::account
