#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace fsdpbench::watch {

/// A whole number from 0 to `most`; none if there is no such number.
std::optional<std::int64_t> count_in(const nlohmann::json& object, const char* key, std::int64_t most);
/// Text fit to be shown; empty if there is none.
std::string text_in(const nlohmann::json& object, const char* key);
bool is_true_in(const nlohmann::json& object, const char* key);
bool has_object(const nlohmann::json& object, const char* key);

inline constexpr std::int64_t kMostMembers = std::int64_t{1} << 20;  ///< ranks of a job or communicator
inline constexpr std::int64_t kMostCount = std::int64_t{1} << 62;

}  // namespace fsdpbench::watch
