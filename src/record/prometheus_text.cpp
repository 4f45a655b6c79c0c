#include "record/prometheus_text.h"

#include "base/clean_text.h"

namespace fsdpbench::app {

std::string prometheus_label(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text, kMostOfAMessage)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace fsdpbench::app
