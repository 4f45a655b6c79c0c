#include "config/sweep_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/file_lock.h"
#include "config/fields.h"
#include "config/nearest.h"
#include "config/toml_file.h"

namespace fsdpbench::config {
namespace {

constexpr std::int64_t kMostTrials = 1000;

/// One `key = …` of a table, whether its dotted key was quoted or not.
struct Item {
  std::string key;
  const toml::node* node;
  std::string place;
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(parse_toml(path, FileKind::sweep)) {}

  SweepFile read() {
    check_names();
    SweepFile sweep;
    sweep.title = text("title", std::filesystem::path(path_).stem().string());
    sweep.base = base();
    sweep.trials = integer("trials", sweep.trials, 1, kMostTrials);
    sweep.seed = static_cast<std::uint64_t>(integer("seed", 1, 0, INT64_MAX));
    sweep.set = settings(table("set"));
    sweep.axes = axes(sweep);
    sweep.skips = rules(sweep, "skip", "reason");
    sweep.whens = rules(sweep, "when", "set");
    sweep.x = axis_name(sweep, "x", text("x", ""), file_.get("x"));
    sweep.series = series(sweep);
    sweep.notes = std::move(notes_);
    return sweep;
  }

 private:
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
    throw ConfigError(fmt::format("{}: {}", place_of(path_, node), message));
  }

  void check_names() const {
    static const std::vector<std::string> kNames{"title", "x",   "series", "base", "trials",
                                                 "seed",  "set", "axes",   "skip", "when"};
    for (const auto& [key, node] : file_) {
      const std::string name(key.str());
      if (std::ranges::count(kNames, name) > 0) continue;
      fail(node, fmt::format("unknown key '{}'{}; valid are {}.", name, nearest_clause(name, kNames),
                             fmt::join(kNames, ", ")));
    }
  }

  std::string text(const char* name, const std::string& otherwise) const {
    const toml::node* node = file_.get(name);
    if (node == nullptr) return otherwise;
    if (const auto* v = node->as_string()) return v->get();
    fail(*node, fmt::format("{} is not valid; expected a string.", name));
  }

  std::int64_t integer(const char* name, std::int64_t otherwise, std::int64_t low, std::int64_t high) const {
    const toml::node* node = file_.get(name);
    if (node == nullptr) return otherwise;
    const auto* v = node->as_integer();
    if (v != nullptr && v->get() >= low && v->get() <= high) return v->get();
    fail(*node, fmt::format("{} is not valid; expected an integer from {} to {}.", name, low, high));
  }

  std::string base() const {
    const std::string given = text("base", "");
    if (given.empty()) {
      throw ConfigError(
          fmt::format("{}: there is no base; a sweep starts from a run profile, as in base = "
                      "\"../runs/quickstart.toml\" (from the sweep file's folder).",
                      path_));
    }
    const std::filesystem::path path = std::filesystem::path(path_).parent_path() / given;
    if (path_exists(path)) return std::filesystem::absolute(path).lexically_normal().string();
    if (given.find('/') != std::string::npos) {
      fail(*file_.get("base"), fmt::format("base = \"{}\": there is no such file beside the sweep file.", given));
    }
    try {
      return std::filesystem::absolute(find_profile(given)).lexically_normal().string();
    } catch (const ConfigError& error) {
      fail(*file_.get("base"), fmt::format("base = \"{}\": {}", given, error.what()));
    }
  }

  const toml::table* table(const char* name) const {
    const toml::node* node = file_.get(name);
    if (node == nullptr || node->is_table()) return node == nullptr ? nullptr : node->as_table();
    fail(*node, fmt::format("{} is not valid; expected a table: write [{}] on a line of its own.", name, name));
  }

  /// In the order of the file.
  std::vector<Item> items(const toml::table* from, std::string_view except = {}) const {
    std::vector<Item> found;
    if (from == nullptr) return found;
    for (const auto& [key, node] : *from) {
      if (key.str() == except) continue;
      const toml::table* inner = node.as_table();
      if (inner == nullptr) {
        found.push_back({std::string(key.str()), &node, place_of(path_, node)});
        continue;
      }
      for (const auto& [inner_key, inner_node] : *inner) {
        found.push_back({fmt::format("{}.{}", key.str(), inner_key.str()), &inner_node, place_of(path_, inner_node)});
      }
    }
    std::ranges::stable_sort(found, {}, [](const Item& item) {
      const auto begin = item.node->source().begin;
      return std::pair(begin.line, begin.column);
    });
    return found;
  }

  const Field& field(const std::string& key, const toml::node& node) const {
    const Field* found = find_field(key);
    if (found != nullptr) return *found;
    fail(node, unknown_key(key));
  }

  Value value(const std::string& key, const toml::node& node) {
    const Field& f = field(key, node);
    const std::optional<Value> read = scalar(node);
    RunConfig scratch;
    if (read && f.read(scratch, *read)) return *read;
    if (const std::optional<Value> meaning = read ? meant_by(f, *read) : std::nullopt) {
      notes_.push_back(fmt::format("{} = {} is taken for {}.", key, to_toml(*read), to_toml(*meaning)));
      return *meaning;
    }
    fail(node, fmt::format("{} = {} is not valid; expected {}.{}", key, read ? to_toml(*read) : "…", f.valid,
                           read ? right_word(f, *read) : ""));
  }

  /// One value or an array of them; never none, never the same twice.
  std::vector<Value> values(const Item& item) {
    field(item.key, *item.node);
    const toml::array* array = item.node->as_array();
    std::vector<Value> all;
    if (array == nullptr) {
      all.push_back(value(item.key, *item.node));
      return all;
    }
    if (array->empty()) fail(*item.node, fmt::format("{} has no values; expected at least one.", item.key));
    std::set<Value> seen;
    for (const toml::node& element : *array) {
      Value v = value(item.key, element);
      if (!seen.insert(v).second) {
        fail(element, fmt::format("{} has the value {} twice; leave one out.", item.key, to_toml(v)));
      }
      all.push_back(std::move(v));
    }
    return all;
  }

  std::vector<SweepAxis> axes(const SweepFile& sweep) {
    std::vector<SweepAxis> all;
    for (const Item& item : items(table("axes"))) {
      if (std::ranges::any_of(sweep.set, [&](const auto& fixed) { return fixed.first == item.key; })) {
        fail(*item.node, fmt::format("{} is an axis and is fixed in [set]; take it out of one.", item.key));
      }
      if (std::ranges::any_of(all, [&](const SweepAxis& axis) { return axis.key == item.key; })) {
        fail(*item.node, fmt::format("{} is an axis twice; leave one out.", item.key));
      }
      all.push_back({item.key, values(item)});
    }
    if (all.empty()) {
      throw ConfigError(fmt::format(
          "{}: there are no axes; write [axes] and below it what varies, as in \"mesh.ranks\" = [2, 4, 8].", path_));
    }
    return all;
  }

  std::string axis_name(const SweepFile& sweep, const char* what, const std::string& name,
                        const toml::node* node) const {
    std::vector<std::string> names;
    for (const SweepAxis& axis : sweep.axes) names.push_back(axis.key);
    if (name.empty() || std::ranges::count(names, name) > 0) return name;
    fail(*node, fmt::format("{} = \"{}\" is no axis of this sweep{}; there are {}.", what, name,
                            nearest_clause(name, names), fmt::join(names, ", ")));
  }

  /// [[skip]] and [[when]]: axes with the values that they must have, and one word of their own.
  std::vector<CellRule> rules(const SweepFile& sweep, const char* name, const char* own) {
    std::vector<CellRule> all;
    const toml::node* node = file_.get(name);
    if (node == nullptr) return all;
    const toml::array* array = node->as_array();
    if (array == nullptr || !array->is_array_of_tables()) {
      fail(*node, fmt::format("{0} is not valid; expected rules: write [[{0}]] on a line of its own for each.", name));
    }
    for (const toml::node& element : *array) {
      CellRule rule;
      const toml::table& table = *element.as_table();
      if (const toml::node* word = table.get(own)) take_own(sweep, own, *word, rule);
      for (const Item& item : items(&table, own)) {
        axis_name(sweep, name, item.key, item.node);
        rule.when.push_back({item.key, values(item)});
      }
      if (rule.when.empty()) fail(element, "this rule is for every cell; name an axis and its values.");
      all.push_back(std::move(rule));
    }
    return all;
  }

  void take_own(const SweepFile& sweep, std::string_view own, const toml::node& node, CellRule& rule) {
    if (own == "reason") {
      const auto* reason = node.as_string();
      if (reason == nullptr) fail(node, "reason is not valid; expected a string.");
      rule.reason = reason->get();
      return;
    }
    if (!node.is_table()) fail(node, "set is not valid; expected a table, as in set = { \"mesh.replicate\" = 2 }.");
    rule.set = settings(node.as_table());
    for (const auto& [key, ignored] : rule.set) {
      if (std::ranges::any_of(sweep.axes, [&](const SweepAxis& axis) { return axis.key == key; })) {
        fail(node, fmt::format("{} is an axis; a rule cannot set it.", key));
      }
    }
  }

  Settings settings(const toml::table* from) {
    Settings all;
    for (const Item& item : items(from)) all.emplace_back(item.key, value(item.key, *item.node));
    return all;
  }

  std::vector<std::string> series(const SweepFile& sweep) const {
    std::vector<std::string> all;
    const toml::node* node = file_.get("series");
    if (node == nullptr) return all;
    const auto take = [&](const toml::node& element) {
      const auto* name = element.as_string();
      if (name == nullptr) fail(element, "series is not valid; expected an axis or an array of axes.");
      all.push_back(axis_name(sweep, "series", name->get(), &element));
    };
    if (const toml::array* array = node->as_array()) {
      for (const toml::node& element : *array) take(element);
    } else {
      take(*node);
    }
    return all;
  }

  std::string path_;
  toml::table file_;
  std::vector<std::string> notes_;
};

}  // namespace

SweepFile load_sweep(const std::string& path) { return Reader(path).read(); }

}  // namespace fsdpbench::config
