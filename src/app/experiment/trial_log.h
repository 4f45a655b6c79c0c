#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/experiment/trial.h"

namespace fsdpbench::app {

/// A trial of a cell as a line of the log. Failing is a result too.
struct LoggedTrial {
  std::string cell;            ///< SweepCell::id
  std::uint64_t number = 0;    ///< of the cell's trials, from 0
  std::optional<Trial> trial;  ///< absent: it failed
  std::string reason;          ///< why it failed
  int exit_code = 0;           ///< with which `fsdpbench run` would have failed
};

/// What the text of a trials file says.
struct ParsedTrials {
  std::string sweep;                ///< hash of the sweep that wrote it; empty: nothing was written yet
  std::vector<LoggedTrial> trials;  ///< one a line
  std::size_t whole_bytes = 0;      ///< how much of the text is whole lines
};

/// Lines of JSON, the first of them a header. A last line that is not whole is what a kill in mid-write leaves, so it
/// does not count; any other damage throws ConfigError with `place` and line.
ParsedTrials parse_trials(std::string_view text, const std::string& place);

/// The finished trials of a sweep, one line each, appended and synced before append() returns: a kill at any moment
/// loses at most the trial that was running. Locked, so that no second process appends.
class TrialLog {
 public:
  /// Opens or makes the file, and cuts off a torn last line. Throws ConfigError if it belongs to another sweep or is
  /// damaged, OutputError if it cannot be written or another process has it.
  TrialLog(const std::filesystem::path& path, const std::string& sweep);
  ~TrialLog();
  TrialLog(const TrialLog&) = delete;
  TrialLog& operator=(const TrialLog&) = delete;

  /// In the order in which they ended, those from before first.
  const std::vector<LoggedTrial>& trials() const { return trials_; }
  /// Bytes of a torn last line that were cut off.
  std::size_t torn_bytes() const { return torn_bytes_; }

  /// On disk when it returns. Keeps everything but what the ranks recorded. Throws OutputError.
  void append(LoggedTrial trial);

 private:
  void write_line(const nlohmann::json& line);

  std::filesystem::path path_;
  int file_ = -1;
  std::size_t torn_bytes_ = 0;
  std::vector<LoggedTrial> trials_;
};

}  // namespace fsdpbench::app
