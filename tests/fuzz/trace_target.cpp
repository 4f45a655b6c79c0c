#include "fuzz/fuzz_target.h"
#include "trace/validate.h"

namespace fsdpbench::fuzz {

Target target() { return {"trace", {"tests/fuzz/seeds/trace.json"}, "trace.json"}; }

void parse(const std::string& path) { trace::validate_file(path); }

}  // namespace fsdpbench::fuzz
