#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "foreign/watch/job_view.h"

namespace fsdpbench::watch {

/// A whole number from 0 to `most`; none if there is no such number.
std::optional<std::int64_t> count_in(const nlohmann::json& object, const char* key, std::int64_t most);
/// Text fit to be shown; empty if there is none.
std::string text_in(const nlohmann::json& object, const char* key);
bool is_true_in(const nlohmann::json& object, const char* key);
bool has_object(const nlohmann::json& object, const char* key);

inline constexpr std::int64_t kMostMembers = std::int64_t{1} << 20;  ///< ranks of a job or communicator
inline constexpr std::int64_t kMostCount = std::int64_t{1} << 62;

/// Adds one answer of NCCL's RAS in JSON, as `ncclras -f json` prints it (src/ras/client_support.cc of NCCL, from
/// 2.28.7 on): all communicators of the job at one moment. Returns why it is none; empty: it is added, or left out
/// because it is no newer than the last. `time_ns`: when it came, Unix time; -1: what it says itself, in whole seconds
/// and taken as this machine's local time, because it names no zone. Communicators that are no longer in it are
/// forgotten. Ranks are those of the communicator: RAS tells no others.
std::string add_ras_answer(JobView& job, const nlohmann::json& answer, std::int64_t time_ns);

bool is_ras_answer(const nlohmann::json& answer);

}  // namespace fsdpbench::watch
