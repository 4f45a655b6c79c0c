#include <filesystem>

#include "base/error.h"
#include "config/cluster.h"
#include "foreign/kineto_reader.h"
#include "foreign/xla_program.h"
#include "fuzz/fuzz_target.h"
#include "support/xspace.h"

namespace fsdpbench::fuzz {

Target target() {
  const std::string dot = testing::wire(1, std::string("dot.1")) + testing::wire(2, std::string("dot")) +
                          testing::wire(3, testing::wire(2, 16) + testing::wire(3, std::string("\x04\x08"))) +
                          testing::wire(35, 1) +
                          testing::wire(93, testing::wire(1, testing::wire(1, testing::wire(2, 8))));
  const std::string module = testing::wire(1, std::string("jit_train")) +
                             testing::wire(3, testing::wire(1, std::string("main")) + testing::wire(2, dot) +
                                                  testing::wire(5, 3) + testing::wire(6, 1)) +
                             testing::wire(6, 3);
  return {"xla",
          {"tests/fuzz/seeds/program.hlo.txt"},
          "host.xplane.pb",
          {testing::gpu_step("20").module("jit_train", module).bytes(), module}};
}

void parse(const std::string& path) {
  try {
    foreign::read_job({path});
  } catch (const Error&) {  // a program of XLA's is no trace
  }
  static const config::Cluster kCluster = [] {
    const auto source = std::filesystem::path(__FILE__).parent_path() / "../..";
    config::Cluster cluster = config::load_cluster((source / "profiles/clusters/dgx-h100.toml").string());
    cluster.nodes = 1 << 10;
    return cluster;
  }();
  const foreign::HloModule module = foreign::read_hlo(path);
  foreign::hlo_report(foreign::place_collectives(module));
  foreign::hlo_json(foreign::place_collectives(module, &kCluster));
}

}  // namespace fsdpbench::fuzz
