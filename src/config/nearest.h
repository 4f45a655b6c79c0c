#pragma once

#include <span>
#include <string>
#include <string_view>

/// What a misspelled name was probably meant to be.
namespace fsdpbench::config {

/// The name out of `names` that is the fewest typing errors away from `name`; empty if `names` is.
std::string nearest(std::string_view name, std::span<const std::string> names);

/// The field name that `name` was probably meant to be.
std::string nearest_field(std::string_view name);

}  // namespace fsdpbench::config
