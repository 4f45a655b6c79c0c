#include "account/cause.h"

namespace fsdpbench::account {

std::optional<Cause> cause_named(std::string_view name) {
  for (const Cause cause : kEnumerators<Cause>) {
    if (to_string(cause) == name) return cause;
  }
  return std::nullopt;
}

std::string advice_with(Cause cause, std::string_view settings) {
  std::string text(kCauses[cause].advice);
  if (const std::size_t at = text.find("{}"); at != std::string::npos) {
    text.replace(at, 2, settings.empty() ? "" : " (" + std::string(settings) + ")");
  }
  return text;
}

}  // namespace fsdpbench::account
