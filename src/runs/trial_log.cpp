#include "runs/trial_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "record/json_part.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;

bool has_failed(const LoggedTrial& logged) { return !logged.trial; }

/// Throws ConfigError that says what is wrong with it.
LoggedTrial logged_trial_from(const JsonPart& line, const std::vector<std::string>& cells) {
  LoggedTrial logged{.cell = line.at("cell").text(), .number = 0, .trial = {}, .reason = {}};
  if (!cells.empty() && std::ranges::find(cells, logged.cell) == cells.end()) {
    line.at("cell").refuse("one of the cells that the first line's owner has");
  }
  logged.number = static_cast<std::uint64_t>(line.at("trial").whole(0, kMostTrials - 1));
  const std::string status = line.at("status").text();
  if (status == "failed") {
    logged.reason = line.at("reason").text();
    if (line.has("exit_code")) logged.exit_code = static_cast<int>(line.at("exit_code").whole(0, 255));
    return logged;
  }
  if (status != "ok") line.at("status").refuse("\"ok\" or \"failed\"");
  (void)line.at("metrics");  // a trial of no steps is not logged
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
      text.append(buffer, got);
    } else if (errno != EINTR) {
      throw OutputError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    }
  }
}

LogOwner read_header(const JsonPart& header, const std::string& place) {
  if (!header.has("sweep") || !header.has("trials_version")) {
    throw ConfigError(fmt::format("{}:1: this is no file of trials of a sweep.", place));
  }
  try {
    const std::int64_t version = header.at("trials_version").size();
    if (version != kTrialsVersion) {
      throw ConfigError(fmt::format("trials_version is {}; this program reads {}", version, kTrialsVersion));
    }
    LogOwner owner{header.at("sweep").text(), {}};
    if (owner.hash.empty()) header.at("sweep").refuse("a hash");
    return owner;
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}:1: {}.", place, error.what()));
  }
}

/// A measurement changed by hand must not count.
void check_digest(const json& line, const std::string& place, int number) {
  if (!line.is_object()) return;
  const auto digest = line.find("digest");
  const bool has = digest != line.end();
  if (has && *digest == json_digest(line)) return;
  throw ConfigError(fmt::format("{}:{}: this line is not as it was written: {}; {}.", place, number,
                                has ? "its digest is another" : "its digest is missing",
                                number == 1 ? "restore it, or choose another folder with --out"
                                            : "restore it, or delete it and its trial is measured again"));
}

}  // namespace

// clang-format off
template <>
Fields<LoggedTrial> declared() {
  using L = LoggedTrial;
  return {"TrialLine", "A line of the log of a sweep; its first line says whose log it is.", "runs/trial_log.h", {
    {"cell", &L::cell, "", "cell of the sweep"},
    {"trial", &L::number, "", "number of the trial"},
    {"status", [](const L& l) { return l.trial ? "ok" : "failed"; }, "", "`ok` or `failed`"},
    {"reason", &L::reason, "", "why it failed", when(has_failed)},
    {"exit_code", &L::exit_code, "", "exit code of a run that fails for this reason", when(has_failed)},
    spread(&L::trial),
  }};
}
// clang-format on

ParsedTrials parse_trials(std::string_view text, const std::string& place, const std::vector<std::string>& cells) {
  ParsedTrials parsed;
  std::map<std::pair<std::string, std::uint64_t>, int> measured;  // and in which line
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
      parsed.owner = read_header(JsonPart(line), place);
      check_digest(line, place, number);
    } else {
      check_digest(line, place, number);
      try {
        LoggedTrial logged = logged_trial_from(JsonPart(line), cells);
        const auto [first, is_new] = measured.try_emplace({logged.cell, logged.number}, number);
        if (!is_new) {
          throw ConfigError(fmt::format("trial {} of this cell is in line {} already", logged.number, first->second));
        }
        if (!logged.trial) measured.erase(first);  // it may be tried again
        parsed.trials.push_back(std::move(logged));
      } catch (const ConfigError& error) {
        throw ConfigError(fmt::format("{}:{}: this is no trial: {}.", place, number, error.what()));
      }
    }
    parsed.whole_bytes = end + 1;
  }
  return parsed;
}

TrialLog::TrialLog(const std::filesystem::path& path, const LogOwner& owner) : path_(path), owner_(owner) {
  if (is_no_plain_file(path)) {
    throw ConfigError(fmt::format("{}: is a pipe or a device, and no log of trials; delete it.", path.string()));
  }
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) throw OutputError(fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)));
  try {
    if (!lock_for_this_process(file_)) {
      throw OutputError(fmt::format("{} is in use: another process is writing to it.", path.string()));
    }
    const std::string text = read_all(file_, path);
    const ParsedTrials header = parse_trials(std::string_view(text).substr(0, text.find('\n') + 1), path.string());
    if (!header.owner.hash.empty() && header.owner.hash != owner.hash) {
      throw ConfigError(
          fmt::format("{} holds the trials of another sweep (its base, axes or seed differ from this one's); choose "
                      "another folder with --out, or delete this one.",
                      path.string()));
    }
    ParsedTrials parsed = parse_trials(text, path.string(), owner.cells);
    torn_bytes_ = text.size() - parsed.whole_bytes;
    if (torn_bytes_ > 0 && ::ftruncate(file_, static_cast<off_t>(parsed.whole_bytes)) != 0) {
      throw OutputError(fmt::format("cannot cut the torn line off {}: {}", path.string(), std::strerror(errno)));
    }
    trials_ = std::move(parsed.trials);
    is_new_ = parsed.owner.hash.empty();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

TrialLog::~TrialLog() {
  if (is_new_) ::unlink(path_.c_str());  // while it is still locked
  ::close(file_);
}

std::string TrialLog::torn_note() const {
  if (torn_bytes_ == 0) return "";
  return fmt::format(
      "{}: the last line was torn ({} bytes, from a kill while it was written) and is left out; its trial "
      "runs again",
      path_.string(), torn_bytes_);
}

void TrialLog::append(LoggedTrial trial) {
  if (is_new_) write_line({{"trials_version", kTrialsVersion}, {"sweep", owner_.hash}});
  is_new_ = false;
  write_line(fields<LoggedTrial>().write(trial));
  if (trial.trial) trial.trial->measurement = {};  // megabytes, of no use here
  trials_.push_back(std::move(trial));
}

void TrialLog::write_line(const json& line) {
  json whole = parse_json(json_line(line));  // bytes that are no UTF-8 are others in the file
  whole["digest"] = json_digest(whole);
  const std::string text = json_line(whole) + '\n';
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw OutputError(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
    done += written;
  }
  if (::fsync(file_) != 0) throw OutputError(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  check_is_there();
}

/// A file that was deleted can be written to as before, and all that is written is lost.
void TrialLog::check_is_there() const {
  struct stat mine {
  }, there{};
  if (::fstat(file_, &mine) != 0 ||
      (::stat(path_.c_str(), &there) == 0 && there.st_dev == mine.st_dev && there.st_ino == mine.st_ino)) {
    return;
  }
  throw OutputError(fmt::format(
      "{} was deleted or replaced while trials were written to it: what comes after would be lost.", path_.string()));
}

const ObjectFacts& trial_line_facts() { return fields<LoggedTrial>().facts(); }

}  // namespace fsdpbench::app
