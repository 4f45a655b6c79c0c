#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/fields.h"
#include "config/spelling.h"

/// Probable meaning of a misspelled name. A name is near if a third of its letters at most is wrong, or if
/// one of the two contains the other; what is not near is not suggested.
namespace fsdpbench::config {

/// The name out of `names` that is nearest to `name`; empty if none is near.
std::string nearest(std::string_view name, std::span<const std::string> names);

/// "; the nearest is 'NAME'", for the end of a message; empty if none is near.
std::string nearest_clause(std::string_view name, std::span<const std::string> names);

/// "unknown key 'NAME'" with what was probably meant, or the keys of its section.
std::string unknown_key(std::string_view name);

/// Words that people bring along: those of other systems (config/words), and other spellings of the words used here.
/// Value that `field` takes and `value` must mean, if there is exactly one; else nothing.
std::optional<Value> meant_by(const Field& field, const Value& value);

/// For a value that does not mean exactly one thing: which word is right, as the end of an error message that begins
/// with a space; empty if nothing is known.
std::string right_word(const Field& field, const Value& value);

/// The key that another system calls `key` ("world_size": "mesh.ranks"); empty if none is known.
std::string_view key_of_other_system(std::string_view key);

/// A sentence, after a space, for a key whose values mean several things here (zero_stage); else empty.
std::string words_for_key(std::string_view key);

}  // namespace fsdpbench::config
