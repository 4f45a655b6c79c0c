#include "dialects/dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>
#include <type_traits>

#include "base/error.h"

namespace fsdpbench::dialects {
namespace {

/// Sentence on a key where `when` holds; nothing: always.
struct Case {
  Expression when;
  Fate fate = Fate::same;
  Template text;
};

/// The first case that holds counts; none: it is the same.
struct Rule {
  std::vector<Case> cases;
  bool no_word = false;  ///< a value other than the reference's is lost
  std::string instead;   ///< no_word: what the system does; empty: it does as the reference has it
};

struct Place {
  const SystemFile* file = nullptr;
  const toml::node* node = nullptr;
};

std::vector<std::string_view> split(std::string_view words) {
  std::vector<std::string_view> all;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    all.push_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

}  // namespace

struct Dialect::Understood {
  std::once_flag once;
  Expression engine;
  std::map<std::string, Rule, std::less<>> rules;
  std::vector<std::pair<std::string, Template>> files;
};

namespace {

/// Reader that turns a system's file into rules, names and templates.
class Reader {
 public:
  explicit Reader(const std::vector<const SystemFile*>& files) : files_(files) {}

  Expression expression(const Place& at) {
    return guarded(at, [&] { return read_expression(text_of(*at.file, *at.node), names_); });
  }
  Template text(const Place& at) {
    return guarded(at, [&] { return read_template(text_of(*at.file, *at.node), names_, parts_); });
  }

  std::map<std::string, Rule, std::less<>> rules() {
    std::map<std::string, Rule, std::less<>> rules;
    for (const SystemFile* file : files_) {
      const toml::node* table = file->table.get("rules");
      if (table == nullptr) continue;
      std::set<std::string_view> own;
      for (const auto& [keys, node] : in_order(table_of(*file, *table))) {
        const Rule rule = read_rule({file, node});
        for (const std::string_view key : split(keys)) {
          if (std::ranges::none_of(exported_fields(), [&](const config::Field* f) { return f->name() == key; }))
            refuse(*file, *node, fmt::format("there is no key '{}' that could be exported", key));
          if (!own.insert(key).second) refuse(*file, *node, fmt::format("'{}' has two rules", key));
          rules.try_emplace(std::string(key), rule);
        }
      }
    }
    return rules;
  }

  /// `let` and parts that nothing uses are read, too: a mistake in one is none of a configuration's.
  void read_all() {
    for (const SystemFile* file : files_) {
      for (const auto& [name, node] : entries(*file, "let")) names_(name);
      for (const auto& [name, node] : entries(*file, "parts")) parts_(name);
    }
  }

  static std::vector<std::pair<std::string_view, const toml::node*>> entries(const SystemFile& file,
                                                                             std::string_view section) {
    const toml::node* table = file.table.get(section);
    if (table == nullptr) return {};
    return in_order(table_of(file, *table));
  }

 private:
  /// Says where it is.
  template <class Read>
  static std::invoke_result_t<Read> guarded(const Place& at, Read read) {
    try {
      return read();
    } catch (const ConfigError& error) {
      const std::string_view message = error.what();
      if (message.starts_with("profiles/systems/")) throw;
      refuse(*at.file, *at.node, message);
    }
  }

  Place find(std::string_view section, std::string_view name) const {
    for (const SystemFile* file : files_) {
      const toml::node* table = file->table.get(section);
      if (table == nullptr) continue;
      if (const toml::node* node = table_of(*file, *table).get(name)) return {file, node};
    }
    return {};
  }

  /// Value of that name, read once.
  template <class Made, class Read>
  Made found(std::string_view section, std::string_view name, std::map<std::string, Made, std::less<>>& known,
             Read read) {
    if (const auto old = known.find(name); old != known.end()) {
      if (!old->second) throw ConfigError(fmt::format("'{}' is made of itself", name));
      return old->second;
    }
    const Place place = find(section, name);
    if (place.node == nullptr) return {};
    known.emplace(name, Made());
    return known.find(name)->second = read(place);
  }

  Rule read_rule(const Place& at) {
    Rule rule;
    if (const toml::array* cases = at.node->as_array()) {
      for (const toml::node& one : *cases) rule.cases.push_back(read_case({at.file, &one}));
      return rule;
    }
    const toml::table& table = table_of(*at.file, *at.node);
    const toml::node* instead = table.get("instead");
    rule.no_word = table.empty() || instead != nullptr;
    if (instead != nullptr) rule.instead = text_of(*at.file, *instead);
    if (rule.no_word && table.size() > 1) refuse(*at.file, *at.node, "'instead' stands alone");
    if (!rule.no_word) rule.cases.push_back(read_case(at));
    return rule;
  }

  Case read_case(const Place& at) {
    Case one;
    bool fates = false;
    const auto say = [&](Fate fate) {
      return [&, fate](const toml::node& node) {
        if (std::exchange(fates, true)) refuse(*at.file, *at.node, "a case says one thing");
        one.fate = fate;
        if (fate != Fate::same) one.text = text({at.file, &node});
      };
    };
    read_table(*at.file, *at.node,
               {{"if",
                 [&](const toml::node& node) {
                   one.when = expression({at.file, &node});
                 }},
                {"same", say(Fate::same)},
                {"written", say(Fate::written)},
                {"roughly", say(Fate::roughly)},
                {"lost", say(Fate::lost)},
                {"yours", say(Fate::yours)}});
    if (!fates) refuse(*at.file, *at.node, "a case says nothing: same, written, roughly, lost or yours");
    return one;
  }

  const std::vector<const SystemFile*>& files_;
  std::map<std::string, Expression, std::less<>> lets_;
  std::map<std::string, Template, std::less<>> read_parts_;
  const Names names_ = [this](std::string_view name) {
    Expression own = found("let", name, lets_, [&](const Place& place) { return expression(place); });
    return own ? own : find_word(name);
  };
  const Parts parts_ = [this](std::string_view name) {
    return found("parts", name, read_parts_, [&](const Place& place) { return text(place); });
  };
};

}  // namespace

std::vector<KeyFate> Export::with(Fate fate) const {
  std::vector<KeyFate> found;
  std::ranges::copy_if(keys, std::back_inserter(found), [&](const KeyFate& key) { return key.said.fate == fate; });
  return found;
}

Dialect::Dialect(std::vector<const SystemFile*> files)
    : name(files.front()->name), files_(std::move(files)), understood_(std::make_shared<Understood>()) {
  const SystemFile& file = *files_.front();
  const auto text = [&](std::string& out) { return [&](const toml::node& node) { out = text_of(file, node); }; };
  read_table(file, *file.table.get("export"),
             {{"place", [&](const toml::node& node) { place = node.value_or<std::int64_t>(0); }},
              {"system", text(system)},
              {"what", text(what)},
              {"rules_of", {}},
              {"engine", {}}});
  if (place == 0 || system.empty() || what.empty())
    refuse(file, *file.table.get("export"), "place, system or what is missing");
}

const Dialect::Understood& Dialect::understood() const {
  std::call_once(understood_->once, [this] {
    Reader reader(files_);
    const SystemFile& own = *files_.front();
    const toml::node* engine = own.table.at_path("export.engine").node();
    if (engine == nullptr) refuse(own, *own.table.get("export"), "engine is missing");
    understood_->engine = reader.expression({&own, engine});
    understood_->rules = reader.rules();
    for (const auto& [file, node] : Reader::entries(own, "files")) {
      understood_->files.emplace_back(file, reader.text({&own, node}));
    }
    reader.read_all();
  });
  return *understood_;
}

std::string Dialect::engine(const config::RunConfig& config) const {
  return std::get<std::string>(understood().engine({config, config, nullptr, {}}));
}

bool Dialect::has_rule(const config::Field& field) const { return understood().rules.contains(field.name()); }

Said Dialect::say(const ExportSource& source, const config::Field& field) const {
  const auto& rules = understood().rules;
  const auto rule = rules.find(field.name());
  if (rule == rules.end()) return {Fate::lost, "no rule says what becomes of it"};
  if (rule->second.no_word) {
    const config::Value theirs = field.write(source.reference);
    if (field.write(source.config) == theirs) return {};
    return {Fate::lost, !rule->second.instead.empty() ? rule->second.instead
                                                      : fmt::format("it does as {} = {} ({})", field.key,
                                                                    config::to_toml(theirs), field.meaning)};
  }
  for (const Case& one : rule->second.cases) {
    if (!one.when || is_true(one.when(source))) return {one.fate, one.text ? one.text(source) : ""};
  }
  return {};
}

std::vector<ExportFile> Dialect::write(const ExportSource& source) const {
  std::vector<ExportFile> files;
  for (const auto& [file, text] : understood().files) files.push_back({file, text(source)});
  return files;
}

}  // namespace fsdpbench::dialects
