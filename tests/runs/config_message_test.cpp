#include <gtest/gtest.h>

#include "base/error.h"
#include "config/load.h"
#include "config/validate.h"
#include "runs/job_run.h"

namespace fsdpbench::app {
namespace {

TEST(ConfigMessage, CarriesEveryKey) {
  config::RunConfig sent;
  sent.model.preset = "no such file";  // it must not be looked for on the other side
  sent.data.path = "a \"quoted\" path\nof two lines # and more";
  sent.mesh.ranks = 12;
  sent.fsdp.strategy = config::Strategy::hybrid_shard;
  sent.emulate.link_gb_per_s = 0.125;
  sent.emulate.compute_tflops.reset();
  sent.inject.slow_rank = 2;
  EXPECT_EQ(config_from_message(to_message(sent)), sent);
  EXPECT_EQ(config_from_message(to_message(config::RunConfig{})), config::RunConfig{});
}

TEST(ConfigMessage, SaysWhichLineItCannotRead) {
  for (const char* line : {"mesh.ranks=\"many\"", "mesh.rank=4"}) {
    try {
      config_from_message(std::string("mesh.shard=2\n") + line + "\n");
      FAIL() << line;
    } catch (const BackendError& error) {
      EXPECT_NE(std::string(error.what()).find(line), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace fsdpbench::app
