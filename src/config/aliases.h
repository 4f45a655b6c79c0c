#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/fields.h"
#include "config/spelling.h"

/// Words that people bring along: those of other systems (config/words), and other spellings of the words used here.
namespace fsdpbench::config {

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
