#include "app/experiment/summary_json.h"

#include <nlohmann/json.hpp>
#include <string>

namespace fsdpbench::app {

nlohmann::json summary_json(const metrics::Summary& s) {
  return {{"median", s.median},
          {"ci_low", s.ci_low},
          {"ci_high", s.ci_high},
          {"interval", to_string(s.interval)},
          {"min", s.min},
          {"max", s.max},
          {"n", s.n}};
}

metrics::Summary summary_from(const JsonPart& j) {
  const int n = static_cast<int>(j.at("n").whole(0, 1'000'000'000));
  const auto number = [&](const char* key) { return j.at(key).number(); };
  return {
      number("median"), number("ci_low"), number("ci_high"), metrics::interval_of(n), number("min"), number("max"), n};
}

}  // namespace fsdpbench::app
