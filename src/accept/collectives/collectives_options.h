#pragma once

#include <span>
#include <string>
#include <string_view>

#include "accept/collectives/collectives_arguments.h"

namespace fsdpbench::app {

/// One option of `fsdpbench collectives`: the only place that knows its names, its meaning and what it may be.
struct CollectivesOption {
  std::string_view names;    ///< "-b,--minbytes"
  std::string_view type;     ///< of its value, for the help
  std::string_view meaning;  ///< for the help
  bool may_stand_alone;      ///< without a value it means 1
  /// Throws ConfigError without the option's name if the value is none of it, or asks for what cannot be done here.
  void (*read)(CollectivesArguments&, const std::string& value);
};

/// In the order of the help.
std::span<const CollectivesOption> collectives_options();

/// Reads one option, and notes it in arguments.given. Throws ConfigError that names option and value.
void read_option(CollectivesArguments& arguments, const CollectivesOption& option, const std::string& value);
/// The same by any of its names, as arguments.given has it. Throws ConfigError if there is no such option.
void read_option(CollectivesArguments& arguments, std::string_view name, const std::string& value);

/// "all_gather", or as nccl-tests calls the program: "all_gather_perf". Throws ConfigError for one that is not
/// measured.
backend::Collective collective_named(std::string_view name);

}  // namespace fsdpbench::app
