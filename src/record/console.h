#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include "record/table.h"

namespace fsdpbench::app {

/// The one place through which the program talks to its user. Results go to standard output; everything else
/// (information, warnings, errors, progress) goes to standard error, so that results can be piped. Names, values and
/// messages from outside are in all of it, so all of it passes through clean_text(): a message is one line of at most
/// kMostOfAMessage bytes, whatever is in it. Thread-safe.
class Console {
 public:
  struct Options {
    std::FILE* results = stdout;
    std::FILE* messages = stderr;
    bool terminal = false;  ///< messages go to a terminal: progress is one line that is rewritten
    bool colour = false;    ///< of messages
    bool verdicts = false;  ///< results go to a terminal: verdicts are coloured there
    bool quiet = false;     ///< no information, no progress
    bool verbose = false;   ///< rows, too, that say nothing
  };
  explicit Console(Options options) : options_(options) {}

  void set_quiet(bool quiet) { options_.quiet = quiet; }
  bool quiet() const { return options_.quiet; }
  void set_verbose(bool verbose) { options_.verbose = verbose; }
  bool verbose() const { return options_.verbose; }
  bool terminal() const { return options_.terminal; }

  /// A result: lines, of any length. Where it cannot be written (a full disk, a pipe that nobody reads), unwritten()
  /// says so.
  void print(std::string_view text);
  void print(const Table& table) { print(format_table(table)); }

  /// One line on standard error: information (not if quiet), a warning, an error.
  void info(std::string_view text);
  void warning(std::string_view text);
  void error(std::string_view text);

  /// A terminal: replaces the last progress line. Otherwise: one more line.
  void progress(std::string_view line);
  /// Takes the progress line off the terminal.
  void clear_progress();
  /// errno of the first result that could not be written; 0: all were.
  int unwritten() const;

 private:
  void message(std::string_view label, std::string_view colour, std::string_view text);
  void erase_line();

  Options options_;
  mutable std::mutex mutex_;
  int write_error_ = 0;  ///< errno of the first result that could not be written
  bool line_open_ = false;
};

/// To be called before anything opens a file: where standard input, output or error are closed, the next file that is
/// opened would take their place, and what is printed would go into it. Printing to a closed one fails instead.
void occupy_closed_streams();

/// The process's own, made at first use from what its streams are connected to and NO_COLOR (no-color.org).
Console& console();

}  // namespace fsdpbench::app
