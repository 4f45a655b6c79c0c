#include "config/cluster.h"
#include "fuzz/fuzz_target.h"

namespace fsdpbench::fuzz {

Target target() {
  return {"cluster", {"profiles/clusters/hgx-b200.toml", "profiles/clusters/cpu-2core.toml"}, "cluster.toml"};
}

void parse(const std::string& path) { config::load_cluster(path); }

}  // namespace fsdpbench::fuzz
