#include "app/report/explain_result.h"
#include "fuzz/fuzz_target.h"

namespace fsdpbench::fuzz {

Target target() { return {"result", {"tests/fuzz/seeds/result.json"}, "result.json"}; }

void parse(const std::string& path) { app::explain_result(path); }

}  // namespace fsdpbench::fuzz
