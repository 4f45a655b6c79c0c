#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/digest.h"

namespace fsdpbench::testing {

/// A manifest whose text was changed, with the digest of what it says now: that it was changed is asked elsewhere.
inline std::string with_its_digest(const std::string& text) {
  nlohmann::json content = nlohmann::json::parse(text, nullptr, false);
  if (!content.is_object()) return text;
  content.erase("digest");
  if (content.value("version", 0) >= 4) content["digest"] = json_digest(content);
  return content.dump(1);
}

}  // namespace fsdpbench::testing
