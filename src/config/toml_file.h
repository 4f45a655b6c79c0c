#pragma once

#include <toml++/toml.h>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/find_file.h"
#include "config/spelling.h"

namespace fsdpbench::config {

/// Reads one table of a file whose keys are all known: each is asked for once, and what is left over is an error.
/// Refers to its arguments. All functions throw ConfigError with file, line, key and what would be valid.
class StrictTable {
 public:
  /// `what`: the file, as "a calibration".
  StrictTable(const std::string& path, const toml::table& table, std::string_view what)
      : path_(path), table_(table), what_(what) {}

  /// Whether the key is there, of those that may be left out; it is valid if it is not.
  bool has(std::string_view key);
  double number(std::string_view key, double low, double high);
  int whole(std::string_view key, int low, int high);
  /// The key "version". `file`: what it is, as "calibration"; `remedy`: how to come by one that is `expected`.
  void require_version(int expected, std::string_view file, std::string_view remedy);
  std::string text(std::string_view key);
  /// At least one of each.
  std::vector<double> numbers(std::string_view key, double low, double high);
  std::vector<std::string> texts(std::string_view key);
  /// Lists of `columns` numbers, at least one.
  std::vector<std::vector<double>> rows(std::string_view key, std::size_t columns, double low, double high);
  const toml::table& table(std::string_view key);
  std::vector<const toml::table*> tables(std::string_view key);
  /// Throws ConfigError for a key that was not asked for.
  void finish() const;

 private:
  const toml::node* take(std::string_view key);
  [[noreturn]] void fail(std::string_view key, const toml::node* node, const std::string& valid) const;

  const std::string& path_;
  const toml::table& table_;
  std::string_view what_;
  std::vector<std::string> known_;
};

}  // namespace fsdpbench::config

/// Functions that reading profiles and reading sweep files share.
namespace fsdpbench::config {

/// TOML that is nested far beyond any use.
struct TooDeep {
  int line = 1;
  std::string what;  ///< "a key has more than 16 parts"
};

/// Whether `text` is: keys of more than 16 parts, or arrays and tables 32 deep. To be asked before toml++ reads it,
/// which reads them by recursion and overflows the stack. Looks at characters only, and takes any text.
std::optional<TooDeep> too_deep(std::string_view text);

/// The TOML file at `path`. Throws ConfigError if it cannot be read, is not TOML, or is plainly of another kind than
/// `wanted`: then the message says what it is and which command takes it.
toml::table parse_toml(const std::string& path, FileKind wanted);

/// The value of a TOML node; nothing for arrays, tables and dates, which no key takes.
std::optional<Value> scalar(const toml::node& node);

/// Position of a node: "profile.toml:12".
std::string place_of(const std::string& path, const toml::node& node);

}  // namespace fsdpbench::config
