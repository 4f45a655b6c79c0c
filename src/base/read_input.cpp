#include "base/read_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench {
namespace {

/// Kind of a file that is not regular; "" for one.
std::string other_kind(mode_t mode) {
  if (S_ISREG(mode)) return "";
  if (S_ISDIR(mode)) return "is a folder";
  if (S_ISFIFO(mode)) return "is a pipe, as <(...) is; write what comes out of it to a regular file first";
  if (S_ISSOCK(mode)) return "is a socket, and no regular file";
  return "is a device, and no regular file";
}

std::string why_not(int error) {
  return error == ENOENT || error == ENOTDIR ? "there is no such file"
                                             : fmt::format("cannot be read: {}", std::strerror(error));
}

}  // namespace

Input::Input(std::filesystem::path path, std::string_view expected) : path_(std::move(path)), expected_(expected) {
  struct stat status {};
  // Before it is opened, which alone may do something to a device; and after, because another may be there by then.
  if (::stat(path_.c_str(), &status) != 0) fail(why_not(errno));
  if (const std::string kind = other_kind(status.st_mode); !kind.empty()) fail(kind);
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file_ < 0) fail(why_not(errno));
  const bool known = ::fstat(file_, &status) == 0;
  const std::string why = known ? other_kind(status.st_mode) : why_not(errno);
  if (!why.empty()) {
    ::close(std::exchange(file_, -1));
    fail(why);
  }
  bytes_ = status.st_size;
}

Input::~Input() {
  if (file_ >= 0) ::close(file_);
}

int Input::release() { return std::exchange(file_, -1); }

void Input::fail(const std::string& why) const {
  throw ConfigError(fmt::format("{}: {}{}{}.", path_.string(), why, expected_.empty() ? "" : "; ", expected_));
}

std::string Input::text(std::int64_t most) const {
  const auto refuse = [&](std::int64_t bytes) {
    fail(fmt::format("has {}, and of such a file at most {} are read", format_bytes(bytes), format_bytes(most)));
  };
  if (bytes_ > most) refuse(bytes_);  // before anything of it is in memory
  std::string text = read(most + 1);
  if (std::cmp_greater(text.size(), most)) refuse(std::ssize(text));
  return text;
}

std::string Input::beginning(std::size_t most) const { return read(static_cast<std::int64_t>(most)); }

std::string Input::read(std::int64_t most) const {
  constexpr std::int64_t kPiece = 1 << 20;  // files of /proc say that they have no bytes
  std::string text;
  for (;;) {
    const auto have = std::ssize(text);
    const std::int64_t wanted = std::min(most - have, std::max(kPiece, bytes_ - have));
    if (wanted <= 0) return text;
    text.resize(have + wanted);
    ssize_t got = 0;
    do {
      got = ::pread(file_, text.data() + have, wanted, have);
    } while (got < 0 && errno == EINTR);
    if (got < 0) fail(fmt::format("cannot be read: {}", std::strerror(errno)));
    text.resize(have + got);
    if (got == 0) return text;
  }
}

std::string read_input(const std::filesystem::path& path, std::int64_t most, std::string_view expected) {
  return Input(path, expected).text(most);
}
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// Bytes of the UTF-8 character at the front of `text`, which is not empty, and its code point; 0 bytes: it is none.
std::size_t character(std::string_view text, std::uint32_t& code) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xC2 ? 0
                           : first < 0xE0 ? 2
                           : first < 0xF0 ? 3
                           : first < 0xF5 ? 4
                                          : 0;
  if (size == 0 || size > text.size()) return 0;
  code = size == 1 ? first : first & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if (!continues(text[i])) return 0;
    code = code << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter would have done: not UTF-8
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kLeast[size] || code > 0x10FFFF || surrogate ? 0 : size;
}

struct Range {
  std::uint32_t first, last;
};

/// Characters that move a cursor, delete, reverse text, or are not seen at all: Unicode's control and format
/// characters, and its ends of lines. analysis/fsdpbench/analysis/text.py has the same.
constexpr Range kActing[] = {{0x7F, 0x9F},       {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},
                             {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},
                             {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x2064},
                             {0x2066, 0x206F},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
                             {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
                             {0xE0001, 0xE0001}, {0xE0020, 0xE007F}};

bool acts(std::uint32_t code) {
  if (code < 0x7F) return code < 0x20;
  return std::ranges::any_of(kActing, [=](Range r) { return r.first <= code && code <= r.last; });
}

/// Calls `keep` with what can be seen, and `show` with each character that acts, or byte that is no UTF-8 (code 0).
template <typename Keep, typename Show>
void each_character(std::string_view text, Keep&& keep, Show&& show) {
  while (!text.empty()) {
    std::uint32_t code = 0;
    const std::size_t size = character(text, code);
    const std::string_view bytes = text.substr(0, std::max<std::size_t>(size, 1));
    if (size > 0 && !acts(code)) {
      keep(bytes);
    } else {
      show(bytes, size > 0 ? code : 0);
    }
    text.remove_prefix(bytes.size());
  }
}

void append_clean(std::string& out, std::string_view text, Lines lines) {
  each_character(
      text, [&](std::string_view bytes) { out.append(bytes); },
      [&](std::string_view bytes, std::uint32_t code) {
        if (lines == Lines::keep && (code == '\n' || code == '\t')) {
          out.append(bytes);
          return;
        }
        for (const char c : bytes) {
          fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
        }
      });
}

}  // namespace

std::string clean_json(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  each_character(
      text, [&](std::string_view bytes) { out.append(bytes); },
      [&](std::string_view bytes, std::uint32_t code) {
        if (code < 0x7F) {  // its own line ends; inside texts they are escaped already
          out.append(bytes);
        } else if (code < 0x10000) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
        } else {
          const std::uint32_t rest = code - 0x10000;
          fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10U),
                         0xDC00 + (rest & 0x3FFU));
        }
      });
  return out;
}

std::string clean_text(std::string_view text, std::size_t most, Lines lines) {
  std::string out;
  if (most == 0 || text.size() <= most) {
    append_clean(out, text, lines);
    return out;
  }
  std::size_t head = most / 2;
  while (head > 0 && continues(text[head])) --head;
  std::size_t tail = text.size() - (most - most / 2);
  while (tail < text.size() && continues(text[tail])) ++tail;
  append_clean(out, text.substr(0, head), lines);
  fmt::format_to(std::back_inserter(out), " … ({} bytes left out) … ", tail - head);
  append_clean(out, text.substr(tail), lines);
  return out;
}

}  // namespace fsdpbench
