#include "app/experiment/trial_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/console/json_text.h"
#include "app/experiment/trial_json.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

constexpr int kTrialsVersion = 2;

bool is_text(const json& object, const char* key) { return object.contains(key) && object[key].is_string(); }

json to_json(const LoggedTrial& logged) {
  json line = logged.trial ? to_json(*logged.trial) : json{{"reason", logged.reason}, {"exit_code", logged.exit_code}};
  line["cell"] = logged.cell;
  line["trial"] = logged.number;
  line["status"] = logged.trial ? "ok" : "failed";
  return line;
}

/// Throws ConfigError that says what is wrong with it.
LoggedTrial logged_trial(const json& line) {
  if (!line.is_object()) throw ConfigError("it is no object");
  if (!is_text(line, "cell")) throw ConfigError("it names no cell");
  if (!line.contains("trial") || !line["trial"].is_number_unsigned()) throw ConfigError("it has no trial number");
  if (!is_text(line, "status")) throw ConfigError("it has no status");
  LoggedTrial logged{.cell = line["cell"], .number = line["trial"], .trial = {}, .reason = {}};
  if (line["status"] == "failed") {
    if (!is_text(line, "reason")) throw ConfigError("it gives no reason for the failure");
    logged.reason = line["reason"];
    if (line.contains("exit_code") && line["exit_code"].is_number_integer()) logged.exit_code = line["exit_code"];
    return logged;
  }
  if (line["status"] != "ok") throw ConfigError("its status is neither ok nor failed");
  if (!line.contains("metrics")) throw ConfigError("it has no metrics");
  logged.trial = trial_from_json(line);
  return logged;
}

std::string read_all(int file, const std::filesystem::path& path) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got == 0) return text;
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      throw OutputError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    }
  }
}

std::string read_header(const json& header, const std::string& place) {
  if (!header.is_object() || !is_text(header, "sweep") || !header.contains("trials_version")) {
    throw ConfigError(fmt::format("{}:1: this is no file of trials of a sweep.", place));
  }
  if (header["trials_version"] != kTrialsVersion) {
    throw ConfigError(fmt::format("{}:1: trials_version is {}; this program reads {}.", place,
                                  header["trials_version"].dump(), kTrialsVersion));
  }
  return header["sweep"];
}

}  // namespace

ParsedTrials parse_trials(std::string_view text, const std::string& place) {
  ParsedTrials parsed;
  int number = 0;
  while (parsed.whole_bytes < text.size()) {
    const std::size_t end = text.find('\n', parsed.whole_bytes);
    if (end == std::string_view::npos) break;
    const std::string_view raw = text.substr(parsed.whole_bytes, end - parsed.whole_bytes);
    ++number;
    const json line = parse_json(raw);
    if (line.is_discarded()) {
      if (end + 1 == text.size()) break;  // a kill or a crash of the machine in mid-write
      throw ConfigError(
          fmt::format("{}:{}: this line is damaged (not JSON); delete it to go on without it.", place, number));
    }
    if (number == 1) {
      parsed.sweep = read_header(line, place);
    } else {
      try {
        parsed.trials.push_back(logged_trial(line));
      } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}:{}: this is no trial: {}.", place, number, error.what()));
      }
    }
    parsed.whole_bytes = end + 1;
  }
  return parsed;
}

TrialLog::TrialLog(const std::filesystem::path& path, const std::string& sweep) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) throw OutputError(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  try {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      throw OutputError(fmt::format("{} is in use: another sweep is writing to it.", path.string()));
    }
    const std::string text = read_all(file_, path);
    ParsedTrials parsed = parse_trials(text, path.string());
    if (!parsed.sweep.empty() && parsed.sweep != sweep) {
      throw ConfigError(
          fmt::format("{} holds the trials of another sweep (its base, axes or seed differ from this one's); "
                      "choose another folder with --out, or delete this one.",
                      path.string()));
    }
    torn_bytes_ = text.size() - parsed.whole_bytes;
    if (torn_bytes_ > 0 && ::ftruncate(file_, static_cast<off_t>(parsed.whole_bytes)) != 0) {
      throw OutputError(fmt::format("cannot cut the torn line off {}: {}", path.string(), std::strerror(errno)));
    }
    trials_ = std::move(parsed.trials);
    if (parsed.sweep.empty()) write_line({{"trials_version", kTrialsVersion}, {"sweep", sweep}});
  } catch (...) {
    ::close(file_);
    throw;
  }
}

TrialLog::~TrialLog() { ::close(file_); }

void TrialLog::append(LoggedTrial trial) {
  write_line(to_json(trial));
  if (trial.trial) trial.trial->measurement = {};  // megabytes, of no use here
  trials_.push_back(std::move(trial));
}

void TrialLog::write_line(const json& line) {
  const std::string text = json_line(line) + '\n';
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw OutputError(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
    done += static_cast<std::size_t>(written);
  }
  if (::fsync(file_) != 0) throw OutputError(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
}

}  // namespace fsdpbench::app
