#pragma once

#include <string>
#include <string_view>

namespace fsdpbench::app {

/// A label's value in Prometheus' text format, without its quotes.
std::string prometheus_label(std::string_view text);

}  // namespace fsdpbench::app
