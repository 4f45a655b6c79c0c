#include "config/load.h"
#include "config/validate.h"
#include "fuzz/fuzz_target.h"

namespace fsdpbench::fuzz {

Target target() {
  return {"profile",
          {"profiles/runs/quickstart.toml", "profiles/runs/hybrid.toml", "profiles/runs/llama3-8b-emulated.toml",
           "profiles/models/llama3-8b.toml", "profiles/README.md"},
          "run.toml"};
}

void parse(const std::string& path) {
  config::RunConfig config = config::load_profile(path);
  config::validate(config);
}

}  // namespace fsdpbench::fuzz
