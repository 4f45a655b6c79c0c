#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "fuzz/fuzz_target.h"
#include "runs/result_file.h"
#include "runs/result_json.h"

namespace fsdpbench::fuzz {

Target target() { return {"result", {"tests/fuzz/seeds/result.json"}, "result.json"}; }

/// A text that is still an object gets its digest anew: else nothing behind the digest would be reached.
void parse(const std::string& path) {
  std::string text;
  {
    std::ifstream file(path, std::ios::binary);
    text = {std::istreambuf_iterator<char>(file), {}};
  }
  if (const nlohmann::json content = nlohmann::json::parse(text, nullptr, false); content.is_object()) {
    std::ofstream(path, std::ios::binary) << app::result_text(content);
  }
  app::explain_result(path);
}

}  // namespace fsdpbench::fuzz
