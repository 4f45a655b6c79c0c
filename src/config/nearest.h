#pragma once

#include <span>
#include <string>
#include <string_view>

/// Probable meaning of a misspelled name. A name is near if a third of its letters at most is wrong, or if
/// one of the two contains the other; what is not near is not suggested.
namespace fsdpbench::config {

/// The name out of `names` that is nearest to `name`; empty if none is near.
std::string nearest(std::string_view name, std::span<const std::string> names);

/// "; the nearest is 'NAME'", for the end of a message; empty if none is near.
std::string nearest_clause(std::string_view name, std::span<const std::string> names);

/// The key that `name` was probably meant to be: what another system's word for it is here, or the nearest; empty if
/// that is none, or more than one.
std::string nearest_field(std::string_view name);

/// "unknown key 'NAME'" with what was probably meant, or the keys of its section.
std::string unknown_key(std::string_view name);

}  // namespace fsdpbench::config
