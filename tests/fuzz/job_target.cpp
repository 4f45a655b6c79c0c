#include "foreign/kineto_reader.h"
#include "fuzz/fuzz_target.h"

namespace fsdpbench::fuzz {

Target target() { return {"job", {"tests/fuzz/seeds/job.json", "tests/fuzz/seeds/job_cpu.json"}, "rank_0.json"}; }

void parse(const std::string& path) {
  foreign::ReadOptions options;
  options.functions = true;
  foreign::read_job({path}, options);
}

}  // namespace fsdpbench::fuzz
