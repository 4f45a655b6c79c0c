#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "config/spelling.h"

namespace fsdpbench::dialects {

struct ExportSource;

/// An expression of a system's file: of values of keys, of what its `let` gives names to, and of the vocabulary.
using Expression = std::function<config::Value(const ExportSource&)>;
/// Value that a name stands for; none if there is no such name.
using Names = std::function<Expression(std::string_view)>;

/// 'text', 12, true, NAME, min(a, b), max(a, b), int(a), python(a), json(a); * / + - of numbers;
/// == != < <= > >=, in 'one other'; not, and, or; IF ? THEN : ELSE. Throws ConfigError for anything else, and where a
/// key is compared with a word that it does not take.
Expression read_expression(std::string_view text, const Names& names);

/// Numbers but 0 and texts but "" are true.
bool is_true(const config::Value& value);

/// Text with values put in.
using Template = std::function<std::string(const ExportSource&)>;
/// Another template by its name; nothing: there is none.
using Parts = std::function<Template(std::string_view)>;

/// {{EXPRESSION}}, {{> PART}}, {{#if EXPRESSION}} … {{#elif EXPRESSION}} … {{#else}} … {{/if}}. Where one of the latter
/// four stands alone in its line, the line is not there. Throws ConfigError for anything else.
Template read_template(std::string_view text, const Names& names, const Parts& parts);

}  // namespace fsdpbench::dialects
