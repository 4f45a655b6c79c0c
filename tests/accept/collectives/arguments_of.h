#pragma once

#include <string>
#include <utility>
#include <vector>

#include "accept/collectives/collectives_options.h"

namespace fsdpbench::app {

inline CollectivesArguments arguments_of(const std::vector<std::pair<std::string, std::string>>& options) {
  CollectivesArguments arguments;
  for (const auto& [name, value] : options) read_option(arguments, name, value);
  settle(arguments);
  return arguments;
}

}  // namespace fsdpbench::app
