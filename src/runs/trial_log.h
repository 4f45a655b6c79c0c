#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/json_fields.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// A trial of a cell as a line of the log. Failing is a result too.
struct LoggedTrial {
  std::string cell;            ///< SweepCell::id
  std::uint64_t number = 0;    ///< of the cell's trials, from 0
  std::optional<Trial> trial;  ///< absent: it failed
  std::string reason;          ///< why it failed
  int exit_code = 0;           ///< with which `fsdpbench run` would have failed
};

/// The sweep whose trials a log holds.
struct LogOwner {
  std::string hash;                ///< of all that decides what a trial measures
  std::vector<std::string> cells;  ///< that may have trials; empty: any
};

/// Version of the log, raised on every change that a reader must know of. No other version is read.
inline constexpr int kTrialsVersion = 4;
const ObjectFacts& trial_line_facts();

/// More trials of a cell than anybody may ask for.
inline constexpr std::int64_t kMostTrials = 1'000'000;

/// Contents of a trials file.
struct ParsedTrials {
  LogOwner owner;                   ///< as the first line says, without cells; no hash: nothing was written yet
  std::vector<LoggedTrial> trials;  ///< one a line
  std::size_t whole_bytes = 0;      ///< how much of the text is whole lines
};

/// Lines of JSON, the first of them a header. A last line that is not whole is what a kill in mid-write leaves, so it
/// does not count; anything else that append() does not write throws ConfigError with `place`, line and key: other
/// damage, a line that is not as it was written (each has a digest), a key that is missing or of
/// another type, a cell that is none of `cells` (empty: any), trial numbers from kMostTrials on, a trial that was
/// measured already.
ParsedTrials parse_trials(std::string_view text, const std::string& place, const std::vector<std::string>& cells = {});

/// The finished trials of a sweep, one line each, appended and synced before append() returns: a kill
/// at any moment loses at most the trial that was running. Locked, so that no second process appends.
class TrialLog {
 public:
  /// Opens or makes the file, and cuts off a torn last line. What nothing is appended to is taken away again. Throws
  /// ConfigError if it has another owner or is damaged, OutputError if it cannot be written or another process has it.
  TrialLog(const std::filesystem::path& path, const LogOwner& owner);
  ~TrialLog();
  TrialLog(const TrialLog&) = delete;
  TrialLog& operator=(const TrialLog&) = delete;

  /// In the order in which they ended, those from before first.
  const std::vector<LoggedTrial>& trials() const { return trials_; }
  /// For a person: what was cut off, if anything was; else empty.
  std::string torn_note() const;

  /// On disk when it returns. Keeps everything but what the ranks recorded. Throws OutputError.
  void append(LoggedTrial trial);

 private:
  void write_line(const nlohmann::json& line);
  void check_is_there() const;

  std::filesystem::path path_;
  LogOwner owner_;
  int file_ = -1;
  bool is_new_ = false;         // nothing is in it
  std::size_t torn_bytes_ = 0;  // of a last line, that were cut off
  std::vector<LoggedTrial> trials_;
};

}  // namespace fsdpbench::app
