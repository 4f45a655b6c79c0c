#include "dialects/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace fsdpbench::dialects {
namespace {

class TemplateParser {
 public:
  TemplateParser(std::string_view text, const Names& names, const Parts& parts)
      : text_(text), names_(names), parts_(parts) {}

  Template read() {
    Template all = sequence();
    if (!end_.empty()) fail(end_, "has no {{#if}}");
    return all;
  }

 private:
  [[noreturn]] static void fail(std::string_view tag, std::string_view why) {
    throw ConfigError(fmt::format("{{{{{}}}}} {}", tag, why));
  }

  /// Up to the end, or to a tag that ends a branch, which is then in end_.
  Template sequence() {
    std::vector<Template> pieces;
    for (end_ = {};;) {
      const auto open = std::min(text_.find("{{", at_), text_.size());
      const std::size_t begin = std::exchange(at_, open);
      std::string literal(text_.substr(begin, open - begin));
      std::string_view tag;
      if (open < text_.size()) {
        const auto close = text_.find("}}", open);
        if (close == std::string_view::npos) fail(text_.substr(open + 2), "is not closed");
        tag = text_.substr(open + 2, close - open - 2);
        at_ = close + 2;
        if (tag.starts_with('#') || tag.starts_with('/') || tag.starts_with('>')) drop_line_of_tag(open, literal);
      }
      if (!literal.empty()) pieces.emplace_back([literal](const ExportSource&) { return literal; });
      if (open == text_.size()) break;
      if (tag.starts_with("#if ")) {
        pieces.push_back(branches(tag.substr(4)));
      } else if (tag.starts_with("> ")) {
        pieces.push_back(parts_(tag.substr(2)));
        if (!pieces.back()) fail(tag, "is a part that there is not");
      } else if (tag.starts_with('#') || tag.starts_with('/')) {
        end_ = tag;
        break;
      } else {
        pieces.push_back(substitution(tag));
      }
    }
    return [pieces](const ExportSource& s) {
      std::string text;
      for (const Template& piece : pieces) text += piece(s);
      return text;
    };
  }

  /// If the tag that begins at `open` and was just read is alone in its line: without that line.
  void drop_line_of_tag(std::size_t open, std::string& before) {
    const auto last = open == 0 ? std::string_view::npos : text_.find_last_not_of(' ', open - 1);
    const std::size_t line = last == std::string_view::npos ? 0 : last + 1;
    if ((line > 0 && text_[last] != '\n') || (at_ < text_.size() && text_[at_] != '\n')) return;
    before.resize(before.size() - (open - line));
    at_ = std::min(at_ + 1, text_.size());
  }

  Template branches(std::string_view condition) {
    std::vector<std::pair<Expression, Template>> all;
    for (bool last = false;;) {
      Expression when;
      if (!last) when = read_expression(condition, names_);
      all.emplace_back(std::move(when), sequence());
      if (end_ == "/if") break;
      if (last || (end_ != "#else" && !end_.starts_with("#elif ")))
        fail("#if " + std::string(condition), "has no {{/if}}");
      last = end_ == "#else";
      if (!last) condition = end_.substr(6);
    }
    end_ = {};
    return [all](const ExportSource& s) {
      for (const auto& [when, text] : all) {
        if (!when || is_true(when(s))) return text(s);
      }
      return std::string();
    };
  }

  Template substitution(std::string_view tag) {
    return [value = read_expression(tag, names_)](const ExportSource& s) {
      return std::visit([](const auto& v) { return fmt::format("{}", v); }, value(s));
    };
  }

  std::string_view text_;
  const Names& names_;
  const Parts& parts_;
  std::size_t at_ = 0;
  std::string_view end_;
};

}  // namespace

Template read_template(std::string_view text, const Names& names, const Parts& parts) {
  return TemplateParser(text, names, parts).read();
}

}  // namespace fsdpbench::dialects
