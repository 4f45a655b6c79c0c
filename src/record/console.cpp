#include "record/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/read_input.h"

namespace fsdpbench::app {
namespace {

constexpr std::string_view kYellow = "\033[33m";
constexpr std::string_view kRed = "\033[31m";
constexpr std::string_view kGreen = "\033[32m";
constexpr std::string_view kPlain = "\033[0m";
constexpr std::string_view kEraseLine = "\r\033[2K";

void write(std::FILE* file, std::string_view text) { std::fwrite(text.data(), 1, text.size(), file); }

/// The beginning of `text`, so that it stays on one line of a terminal: of a longer one only the last part could be
/// erased.
std::string cut(const std::string& text, std::size_t columns) {
  if (columns < 2 || width_of(text) < columns) return text;
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0U) != 0x80U && ++characters + 1 == columns) break;
  }
  return text.substr(0, end) + "…";
}

/// Word and colour of a verdict, in a column of its own or before the colon of a headline.
struct Verdict {
  std::string_view word, colour;
};
constexpr std::array kVerdicts{Verdict{"pass", kGreen},
                               Verdict{"PASS", kGreen},
                               Verdict{"better", kGreen},
                               Verdict{"ok", kGreen},
                               Verdict{"fits", kGreen},
                               Verdict{"fail", kRed},
                               Verdict{"FAIL", kRed},
                               Verdict{"failed", kRed},
                               Verdict{"WORSE", kRed},
                               Verdict{"worse", kRed},
                               Verdict{"too much", kRed},
                               Verdict{"inconclusive", kYellow},
                               Verdict{"INCONCLUSIVE", kYellow},
                               Verdict{"unrated", kYellow},
                               Verdict{"UNRATED", kYellow},
                               Verdict{"not rated", kYellow},
                               Verdict{"unknown", kYellow}};

std::string coloured(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool begins = at == 0 || text[at - 1] == '\n' || text.substr(0, at).ends_with("  ");
    const auto* const verdict = std::ranges::find_if(kVerdicts, [&](const Verdict& v) {
      const std::string_view rest = text.substr(at);
      if (!begins || !rest.starts_with(v.word)) return false;
      const std::string_view after = rest.substr(v.word.size());
      return after.empty() || after.front() == '\n' || after.front() == ':' || after.starts_with("  ");
    });
    if (verdict == kVerdicts.end()) {
      out += text[at++];
      continue;
    }
    out.append(verdict->colour).append(verdict->word).append(kPlain);
    at += verdict->word.size();
  }
  return out;
}

Console::Options options_of_process() {
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  Console::Options options;
  const bool able = term == nullptr || std::string_view(term) != "dumb";
  const bool colours = able && (no_colour == nullptr || *no_colour == '\0');
  options.terminal = able && isatty(STDERR_FILENO) == 1;
  options.colour = colours && options.terminal;
  options.verdicts = colours && isatty(STDOUT_FILENO) == 1;
  return options;
}

}  // namespace

void Console::print(std::string_view raw) {
  std::string text = clean_text(raw, 0, Lines::keep);
  if (options_.verdicts) text = coloured(text);
  const std::scoped_lock lock(mutex_);
  erase_line();
  errno = 0;
  const bool all = std::fwrite(text.data(), 1, text.size(), options_.results) == text.size();
  if ((std::fflush(options_.results) != 0 || !all) && write_error_ == 0) write_error_ = errno != 0 ? errno : EIO;
}

int Console::unwritten() const {
  const std::scoped_lock lock(mutex_);
  return write_error_;
}

void Console::info(std::string_view text) {
  if (!options_.quiet) message("", "", text);
}

void Console::warning(std::string_view text) { message("warning: ", kYellow, text); }
void Console::error(std::string_view text) { message("error: ", kRed, text); }

void Console::message(std::string_view label, std::string_view colour, std::string_view text) {
  const std::scoped_lock lock(mutex_);
  erase_line();
  std::string line;
  if (options_.colour) line += colour;
  line += label;
  if (options_.colour && !colour.empty()) line += kPlain;
  line += clean_text(text, kMostOfAMessage);
  line += '\n';
  write(options_.messages, line);
  std::fflush(options_.messages);
}

void Console::progress(std::string_view line) {
  if (options_.quiet) return;
  const std::scoped_lock lock(mutex_);
  erase_line();
  const std::string text = clean_text(line, kMostOfAMessage);
  write(options_.messages, options_.terminal ? cut(text, terminal_columns(options_.messages)) : text);
  if (options_.terminal) {
    line_open_ = true;
  } else {
    write(options_.messages, "\n");
  }
  std::fflush(options_.messages);
}

void Console::clear_progress() {
  const std::scoped_lock lock(mutex_);
  erase_line();
  std::fflush(options_.messages);
}

void Console::erase_line() {
  if (line_open_) write(options_.messages, kEraseLine);
  line_open_ = false;
}

void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is the stream's. A result that is printed must not seem to have arrived; messages may go.
    (void)!::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

Console& console() {
  static Console instance(options_of_process());
  return instance;
}

}  // namespace fsdpbench::app
