#include "config/spelling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <variant>

#include "base/bytes.h"
#include "base/enum_table.h"

namespace fsdpbench::config {
namespace {

const std::string* text_of(const Value& value) { return std::get_if<std::string>(&value); }

bool is_text(const Value& value, std::string_view text) {
  const std::string* spelled = text_of(value);
  return spelled != nullptr && *spelled == text;
}

template <class Integer>
bool decode_integer(const Value& value, Integer& out) {
  const auto* number = std::get_if<std::int64_t>(&value);
  if (number == nullptr || !std::in_range<Integer>(*number)) return false;
  out = static_cast<Integer>(*number);
  return true;
}

/// The integer of "name:integer".
std::optional<std::int64_t> argument(const Value& value, std::string_view name) {
  const std::string* text = text_of(value);
  if (text == nullptr || text->size() <= name.size() + 1 || !text->starts_with(name) || (*text)[name.size()] != ':') {
    return std::nullopt;
  }
  const char* end = text->data() + text->size();
  std::int64_t number = 0;
  const auto [stop, status] = std::from_chars(text->data() + name.size() + 1, end, number);
  if (status != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// One mode of a key: its word, and the member that holds the number of "word:number" where it takes one.
template <class T>
struct ModeWord {
  typename T::Mode mode;
  std::string_view word;
  std::variant<std::monostate, int T::*, std::int64_t T::*> number = {};
  std::int64_t least = 1;
  bool alone = false;  ///< the word without a number means the usual one
};

using PrefetchMode = Prefetch::Mode;
constexpr auto kPrefetchWords = std::to_array<ModeWord<Prefetch>>({
    {PrefetchMode::none, "none"},
    {PrefetchMode::implicit, "implicit"},
    {PrefetchMode::post, "post"},
    {PrefetchMode::pre, "pre"},
    {PrefetchMode::explicit_, "explicit", &Prefetch::depth},
    {PrefetchMode::ahead, "ahead", &Prefetch::depth},
    {PrefetchMode::window, "window", &Prefetch::elements, 0},
    {PrefetchMode::rate, "rate", &Prefetch::elements, 0},
});
using LimitMode = AllGatherLimit::Mode;
constexpr auto kLimitWords = std::to_array<ModeWord<AllGatherLimit>>({
    {LimitMode::unlimited, "unlimited"},
    {LimitMode::fsdp1_queue, "fsdp1_queue", &AllGatherLimit::count, 1, true},
    {LimitMode::fsdp2_event, "fsdp2_event"},
    {LimitMode::strict, "strict", &AllGatherLimit::count},
    {LimitMode::buffers, "buffers", &AllGatherLimit::count},
    {LimitMode::fetched, "fetched", &AllGatherLimit::count},
    {LimitMode::bytes, "bytes", &AllGatherLimit::bytes},
});
constexpr auto kWrapWords = std::to_array<ModeWord<Wrap>>({
    {Wrap::Mode::block, "block"},
    {Wrap::Mode::blocks, "blocks", &Wrap::blocks},
    {Wrap::Mode::min_size, "size", &Wrap::parameters},
    {Wrap::Mode::model, "model"},
});

template <class T, std::size_t kWords>
Value encode_mode(const std::array<ModeWord<T>, kWords>& words, const T& value) {
  static_assert(kWords == kEnumCount<typename T::Mode>, "each mode has a word");
  const ModeWord<T>& mode = *std::ranges::find(words, value.mode, &ModeWord<T>::mode);
  if (const auto* count = std::get_if<int T::*>(&mode.number)) return fmt::format("{}:{}", mode.word, value.**count);
  if (const auto* size = std::get_if<std::int64_t T::*>(&mode.number)) {
    return fmt::format("{}:{}", mode.word, value.**size);
  }
  return std::string(mode.word);
}

template <class T, std::size_t kWords>
bool decode_mode(const std::array<ModeWord<T>, kWords>& words, const Value& value, T& out) {
  for (const ModeWord<T>& mode : words) {
    T read;
    read.mode = mode.mode;
    const auto* count = std::get_if<int T::*>(&mode.number);
    const auto* size = std::get_if<std::int64_t T::*>(&mode.number);
    if (!is_text(value, mode.word) || ((count != nullptr || size != nullptr) && !mode.alone)) {
      const std::optional<std::int64_t> number = argument(value, mode.word);
      if (!number || *number < mode.least || (count != nullptr ? !std::in_range<int>(*number) : size == nullptr))
        continue;
      if (count != nullptr) read.** count = static_cast<int>(*number);
      if (size != nullptr) read.** size = *number;
    }
    out = read;
    return true;
  }
  return false;
}

/// A bare integer, as text of the mode that it stands for.
Value in_mode(std::string_view word, const Value& value) {
  const auto* number = std::get_if<std::int64_t>(&value);
  return number == nullptr ? value : Value(fmt::format("{}:{}", word, *number));
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Shortest text that reads back as the same double, and as a float rather than an integer.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (!std::isfinite(value)) return text;
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string to_toml(const Value& value) {
  if (const bool* v = std::get_if<bool>(&value)) return *v ? "true" : "false";
  if (const auto* v = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *v);
  if (const double* v = std::get_if<double>(&value)) return float_text(*v);
  return in_quotes(std::get<std::string>(value));
}

Value encode(bool value) { return value; }
Value encode(int value) { return static_cast<std::int64_t>(value); }
Value encode(std::int64_t value) { return value; }
Value encode(std::uint64_t value) { return static_cast<std::int64_t>(value); }
Value encode(double value) { return value; }
Value encode(const std::string& value) { return value; }
Value encode(const std::optional<double>& value) { return value ? Value(*value) : Value(std::string("none")); }

Value encode(const Efficiency& value) { return value.of.empty() ? Value(value.value) : Value(value.of); }

Value encode(const Prefetch& value) { return encode_mode(kPrefetchWords, value); }
Value encode(const AllGatherLimit& value) { return encode_mode(kLimitWords, value); }
Value encode(const Wrap& value) { return encode_mode(kWrapWords, value); }

Value encode(const ReshardAfterForward& value) {
  switch (value.mode) {
    case ReshardAfterForward::Mode::automatic: return std::string("auto");
    case ReshardAfterForward::Mode::always: return true;
    case ReshardAfterForward::Mode::never: return false;
    case ReshardAfterForward::Mode::group: break;
  }
  return static_cast<std::int64_t>(value.group);
}

Value encode(const Trainable& value) {
  if (value.mode == Trainable::Mode::all) return std::string("all");
  return fmt::format("blocks:{}-{}", value.first, value.last);
}

bool decode(const Value& value, bool& out) {
  const bool* v = std::get_if<bool>(&value);
  if (v != nullptr) out = *v;
  return v != nullptr;
}

bool decode(const Value& value, int& out) { return decode_integer(value, out); }
bool decode(const Value& value, std::int64_t& out) { return decode_integer(value, out); }
bool decode(const Value& value, std::uint64_t& out) { return decode_integer(value, out); }

bool decode(const Value& value, double& out) {
  if (const auto* v = std::get_if<std::int64_t>(&value)) {
    out = static_cast<double>(*v);
    return true;
  }
  const double* v = std::get_if<double>(&value);
  if (v == nullptr || !std::isfinite(*v)) return false;
  out = *v;
  return true;
}

bool decode(const Value& value, std::string& out) {
  const std::string* v = text_of(value);
  if (v != nullptr) out = *v;
  return v != nullptr;
}

bool decode(const Value& value, std::optional<double>& out) {
  if (is_text(value, "none")) {
    out.reset();
    return true;
  }
  double number = 0;
  if (!decode(value, number)) return false;
  out = number;
  return true;
}

bool decode(const Value& value, Efficiency& out) {
  Efficiency read;
  if (!decode(value, read.value) && (!decode(value, read.of) || read.of.empty())) return false;
  out = std::move(read);
  return true;
}

bool decode(const Value& value, Prefetch& out) { return decode_mode(kPrefetchWords, in_mode("explicit", value), out); }

bool decode(const Value& value, AllGatherLimit& out) {
  const std::string* text = text_of(value);
  if (text == nullptr || !text->starts_with("bytes:")) return decode_mode(kLimitWords, in_mode("strict", value), out);
  const std::optional<std::int64_t> bytes = parse_bytes(std::string_view(*text).substr(6));
  return bytes && decode_mode(kLimitWords, Value(fmt::format("bytes:{}", *bytes)), out);
}

bool decode(const Value& value, Wrap& out) { return decode_mode(kWrapWords, value, out); }

bool decode(const Value& value, ReshardAfterForward& out) {
  using Mode = ReshardAfterForward::Mode;
  ReshardAfterForward read;
  bool always = false;
  if (is_text(value, "auto")) {
    read.mode = Mode::automatic;
  } else if (decode(value, always)) {
    read.mode = always ? Mode::always : Mode::never;
  } else if (decode(value, read.group) && read.group >= 1) {
    read.mode = Mode::group;
  } else {
    return false;
  }
  out = read;
  return true;
}

bool decode(const Value& value, Trainable& out) {
  if (is_text(value, "all")) {
    out = {};
    return true;
  }
  constexpr std::string_view kBlocks = "blocks:";
  const std::string* text = text_of(value);
  if (text == nullptr || !text->starts_with(kBlocks)) return false;
  Trainable read{.mode = Trainable::Mode::blocks};
  const char* const end = text->data() + text->size();
  const auto [dash, first] = std::from_chars(text->data() + kBlocks.size(), end, read.first);
  if (first != std::errc() || dash == end || *dash != '-') return false;
  const auto [stop, last] = std::from_chars(dash + 1, end, read.last);
  if (last != std::errc() || stop != end || read.first < 0 || read.last < read.first) return false;
  out = read;
  return true;
}

}  // namespace fsdpbench::config
