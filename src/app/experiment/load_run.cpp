#include "app/experiment/load_run.h"

#include <fmt/format.h>

#include "app/console/console.h"
#include "base/error.h"
#include "config/load.h"
#include "config/validate.h"

namespace fsdpbench::app {

config::RunConfig load_run(const std::string& profile, const std::vector<std::string>& overrides, const Job* job,
                           std::vector<std::string>* notes) {
  config::RunConfig config = config::load_profile(profile, overrides, notes);
  if (job == nullptr || config.mesh.ranks == job->ranks()) return config;
  for (const std::string& text : overrides) {
    if (config::read_override(text).name != "mesh.ranks") continue;
    throw ConfigError(
        fmt::format("mesh.ranks = {} was asked for, but there are {} processes, one rank each, as {} says; "
                    "leave it out, or start {} processes.",
                    config.mesh.ranks, job->ranks(), job->session().placement().source, config.mesh.ranks));
  }
  console().info(
      fmt::format("mesh.ranks = {}, the number of processes; {} says {}", job->ranks(), profile, config.mesh.ranks));
  config.mesh.ranks = job->ranks();
  // A resolved configuration names these, too; but for hybrid strategies they follow from the ranks.
  if (!config::is_hybrid(config.fsdp.strategy)) config.mesh.shard = config.mesh.replicate = 0;
  return config;
}

}  // namespace fsdpbench::app
