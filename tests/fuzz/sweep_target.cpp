#include "config/sweep_file.h"
#include "fuzz/fuzz_target.h"

namespace fsdpbench::fuzz {

Target target() {
  return {"sweep", {"profiles/sweeps/strategy-ranks.toml", "profiles/sweeps/open-limit.toml"}, "sweep.toml"};
}

void parse(const std::string& path) { config::load_sweep(path); }

}  // namespace fsdpbench::fuzz
