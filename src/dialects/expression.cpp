#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "config/fields.h"
#include "dialects/template.h"

namespace fsdpbench::dialects {
namespace {

using config::Value;

double number(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&value);
  return real == nullptr ? 0 : *real;
}

bool are_whole(const Value& a, const Value& b) {
  return std::holds_alternative<std::int64_t>(a) && std::holds_alternative<std::int64_t>(b);
}

bool is_number(const Value& value) { return value.index() == 1 || value.index() == 2; }

bool are_equal(const Value& a, const Value& b) {
  return is_number(a) && is_number(b) ? number(a) == number(b) : a == b;
}

/// Whole numbers as such, so that a division rounds down.
template <class Operation>
Value calculated(const Value& a, const Value& b, Operation operation) {
  if (are_whole(a, b)) return operation(std::get<std::int64_t>(a), std::get<std::int64_t>(b));
  return operation(number(a), number(b));
}

Value as_json(const Value& value) {
  return std::visit([](const auto& v) { return nlohmann::json(v).dump(); }, value);
}

class Parser {
 public:
  Parser(std::string_view text, const Names& names) : text_(text), names_(names) {}

  Expression read() {
    Expression all = choice();
    if (!rest().empty()) fail("is not understood");
    return all;
  }

 private:
  [[noreturn]] void fail(std::string_view why) {
    throw ConfigError(fmt::format("'{}' {} in '{}'", rest(), why, text_));
  }

  std::string_view rest() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return text_.substr(at_);
  }

  static bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

  /// Signs, or a word as a whole.
  bool take(std::string_view token) {
    const std::string_view ahead = rest();
    if (!ahead.starts_with(token)) return false;
    if (is_letter(token.back()) && ahead.size() > token.size() && is_letter(ahead[token.size()])) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("stands where '{}' is expected", token));
  }

  Expression choice() {
    Expression condition = any();
    if (!take("?")) return condition;
    Expression yes = choice();
    expect(":");
    Expression no = choice();
    return [condition, yes, no](const ExportSource& s) { return is_true(condition(s)) ? yes(s) : no(s); };
  }

  Expression any() {
    Expression left = all();
    while (take("or")) {
      left = [left, right = all()](const ExportSource& s) -> Value { return is_true(left(s)) || is_true(right(s)); };
    }
    return left;
  }

  Expression all() {
    Expression left = negated();
    while (take("and")) {
      left = [left, right = negated()](const ExportSource& s) -> Value {
        return is_true(left(s)) && is_true(right(s));
      };
    }
    return left;
  }

  Expression negated() {
    if (!take("not")) return comparison();
    return [of = negated()](const ExportSource& s) -> Value { return !is_true(of(s)); };
  }

  Expression comparison() {
    key_ = {};
    Expression left = sum();
    const std::string_view key = key_;
    if (take("in")) {
      const std::vector<std::string> words = words_of(text_literal());
      for (const std::string& word : words) check_word(key, word);
      return [left, words](const ExportSource& s) -> Value {
        const Value value = left(s);
        return std::ranges::any_of(words, [&](const std::string& word) { return value == Value(word); });
      };
    }
    using Compare = bool (*)(const Value&, const Value&);
    static constexpr std::pair<std::string_view, Compare> kComparisons[] = {
        {"==", [](const Value& a, const Value& b) { return are_equal(a, b); }},
        {"!=", [](const Value& a, const Value& b) { return !are_equal(a, b); }},
        {"<=", [](const Value& a, const Value& b) { return number(a) <= number(b); }},
        {">=", [](const Value& a, const Value& b) { return number(a) >= number(b); }},
        {"<", [](const Value& a, const Value& b) { return number(a) < number(b); }},
        {">", [](const Value& a, const Value& b) { return number(a) > number(b); }}};
    for (const auto& [sign, compare] : kComparisons) {
      if (!take(sign)) continue;
      if (rest().starts_with('\'')) {
        const std::string word = text_literal();
        check_word(key, word);
        return [left, word, compare](const ExportSource& s) -> Value { return compare(left(s), word); };
      }
      return [left, right = sum(), compare](const ExportSource& s) -> Value { return compare(left(s), right(s)); };
    }
    return left;
  }

  Expression sum() {
    Expression left = product();
    for (;;) {
      if (take("+")) {
        left = [left, right = product()](const ExportSource& s) {
          return calculated(left(s), right(s), std::plus<>());
        };
      } else if (take("-")) {
        left = [left, right = product()](const ExportSource& s) {
          return calculated(left(s), right(s), std::minus<>());
        };
      } else {
        return left;
      }
    }
  }

  Expression product() {
    Expression left = atom();
    for (;;) {
      if (take("*")) {
        left = [left, right = atom()](const ExportSource& s) {
          return calculated(left(s), right(s), std::multiplies<>());
        };
      } else if (take("/")) {
        left = [left, right = atom()](const ExportSource& s) {
          return calculated(left(s), right(s), std::divides<>());
        };
      } else {
        return left;
      }
    }
  }

  Expression atom() {
    const std::string_view ahead = rest();
    if (ahead.empty()) fail("ends too early");
    if (ahead.front() == '\'') return [text = text_literal()](const ExportSource&) -> Value { return text; };
    if (std::isdigit(static_cast<unsigned char>(ahead.front())) != 0 || ahead.front() == '-') return whole_number();
    if (take("(")) {
      Expression inner = choice();
      expect(")");
      key_ = {};
      return inner;
    }
    for (const bool value : {true, false}) {
      if (take(value ? "true" : "false")) return [value](const ExportSource&) -> Value { return value; };
    }
    const auto end = std::ranges::find_if_not(ahead, is_letter);
    const std::string_view name(ahead.begin(), end);
    if (name.empty()) fail("is not understood");
    at_ += name.size();
    if (take("(")) return call(name);
    Expression found = names_(name);
    if (!found) throw ConfigError(fmt::format("there is no key or word '{}' in '{}'", name, text_));
    key_ = name;
    return found;
  }

  Expression whole_number() {
    const std::string_view ahead = rest();
    const auto end =
        std::find_if_not(ahead.begin() + 1, ahead.end(), [](char c) { return std::isdigit(c) || c == '_'; });
    std::string digits(ahead.begin(), end);
    at_ += digits.size();
    std::erase(digits, '_');
    return [value = std::int64_t{std::stoll(digits)}](const ExportSource&) -> Value { return value; };
  }

  std::string text_literal() {
    const std::string_view ahead = rest();
    const auto end = ahead.find('\'', 1);
    if (!ahead.starts_with('\'') || end == std::string_view::npos) fail("is no text in single quotes");
    at_ += end + 1;
    return std::string(ahead.substr(1, end - 1));
  }

  static std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words(1);
    for (const char c : text) {
      if (c == ' ') {
        words.emplace_back();
      } else {
        words.back() += c;
      }
    }
    return words;
  }

  Expression call(std::string_view name) {
    Expression first = choice();
    Expression result;
    if (name == "int") {
      result = [first](const ExportSource& s) -> Value { return static_cast<std::int64_t>(number(first(s))); };
    } else if (name == "python") {
      result = [first](const ExportSource& s) -> Value { return std::string(is_true(first(s)) ? "True" : "False"); };
    } else if (name == "json") {
      result = [first](const ExportSource& s) { return as_json(first(s)); };
    } else if (name == "min" || name == "max") {
      expect(",");
      result = [first, second = choice(), least = name == "min"](const ExportSource& s) {
        Value a = first(s), b = second(s);
        return (number(b) < number(a)) == least ? b : a;
      };
    } else {
      throw ConfigError(fmt::format("there is no function '{}' in '{}'", name, text_));
    }
    expect(")");
    key_ = {};
    return result;
  }

  /// A key's field says in quotation marks what words it takes; modes are those before a colon.
  void check_word(std::string_view key, std::string_view word) {
    if (key.starts_with("theirs.")) key.remove_prefix(7);
    const bool of_mode = key.ends_with(".mode");
    if (of_mode) key.remove_suffix(5);
    const config::Field* field = config::find_field(key);
    if (field == nullptr || (of_mode && (word == "number" || word == "true" || word == "false"))) return;
    config::RunConfig scratch;
    if (of_mode ? field->valid.find(fmt::format("\"{}", word)) != std::string::npos
                : field->read(scratch, std::string(word)))
      return;
    throw ConfigError(fmt::format("{} is never '{}' in '{}'", key, word, text_));
  }

  std::string_view text_;
  const Names& names_;
  std::size_t at_ = 0;
  std::string_view key_;  ///< the name that the last operand is, if it is that alone
};

}  // namespace

Expression read_expression(std::string_view text, const Names& names) { return Parser(text, names).read(); }

bool is_true(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? number(value) != 0 : !text->empty();
}

}  // namespace fsdpbench::dialects
