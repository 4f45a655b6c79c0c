#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

namespace fsdpbench::app {

/// A field that earlier versions of this program wrote under another name.
struct RenamedField {
  std::string_view file;    ///< "run", "acceptance", "trial", "baseline", "gate", "explain"
  std::string_view object;  ///< where it is: "jitter", "arms.rounds[]"; empty: in the file's own object
  std::string_view was;
  std::string_view is;
};

/// All of them. The Python package has the list from here (docs/result-format.md).
std::span<const RenamedField> renamed_fields();

/// The first version of a kind of file in which fields have their names of today.
int renamed_in(std::string_view file);

/// Gives the fields of a file of `version` the names of today. Whatever is not as expected is left alone: the reader
/// says what is wrong with it.
void use_new_names(std::string_view file, std::int64_t version, nlohmann::json& content);

}  // namespace fsdpbench::app
