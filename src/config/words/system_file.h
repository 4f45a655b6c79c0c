#pragma once

#include <toml++/toml.h>

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdpbench::dialects {

/// profiles/systems/NAME.toml.
struct SystemFile {
  std::string name;  ///< "deepspeed"
  std::string path;  ///< for messages
  toml::table table;
};

/// All of them by name, read at the first call from what the build put into the program. Refers to what lives on.
std::span<const SystemFile> system_files();

/// Throws ConfigError with file and line.
SystemFile read_system_file(std::string_view name, std::string_view text);

/// Throws ConfigError that says where the node stands: "profiles/systems/deepspeed.toml:12: …".
[[noreturn]] void refuse(const SystemFile& file, const toml::node& node, std::string_view why);

/// Entries of a table as they stand in the file.
std::vector<std::pair<std::string_view, const toml::node*>> in_order(const toml::table& table);

/// The string that a node is, or the table. Throws ConfigError for another.
const std::string& text_of(const SystemFile& file, const toml::node& node);
const toml::table& table_of(const SystemFile& file, const toml::node& node);

/// Action for an entry of that name; none: it is another reader's.
using Take = std::pair<std::string_view, std::function<void(const toml::node&)>>;
/// Every entry of the table to its own. Throws ConfigError for a name that is not among them.
void read_table(const SystemFile& file, const toml::node& table, std::initializer_list<Take> known);

}  // namespace fsdpbench::dialects
