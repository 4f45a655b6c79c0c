#include "config/spelling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/bytes.h"

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

/// "name:integer", the integer of a C++ int's size and at least 1.
bool decode_count(const Value& value, std::string_view name, int& out) {
  const std::optional<std::int64_t> number = argument(value, name);
  if (!number || *number < 1 || *number > std::numeric_limits<int>::max()) return false;
  out = static_cast<int>(*number);
  return true;
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

Value encode(const Prefetch& value) {
  switch (value.mode) {
    case Prefetch::Mode::none: return std::string("none");
    case Prefetch::Mode::implicit: return std::string("implicit");
    case Prefetch::Mode::post: return std::string("post");
    case Prefetch::Mode::pre: return std::string("pre");
    case Prefetch::Mode::ahead: return fmt::format("ahead:{}", value.depth);
    case Prefetch::Mode::window: return fmt::format("window:{}", value.elements);
    case Prefetch::Mode::rate: return fmt::format("rate:{}", value.elements);
    case Prefetch::Mode::explicit_: break;
  }
  return fmt::format("explicit:{}", value.depth);
}

Value encode(const AllGatherLimit& value) {
  switch (value.mode) {
    case AllGatherLimit::Mode::unlimited: return std::string("unlimited");
    case AllGatherLimit::Mode::fsdp1_queue: return fmt::format("fsdp1_queue:{}", value.count);
    case AllGatherLimit::Mode::fsdp2_event: return std::string("fsdp2_event");
    case AllGatherLimit::Mode::strict: return fmt::format("strict:{}", value.count);
    case AllGatherLimit::Mode::buffers: return fmt::format("buffers:{}", value.count);
    case AllGatherLimit::Mode::fetched: return fmt::format("fetched:{}", value.count);
    case AllGatherLimit::Mode::bytes: break;
  }
  return fmt::format("bytes:{}", value.bytes);
}

Value encode(const ReshardAfterForward& value) {
  switch (value.mode) {
    case ReshardAfterForward::Mode::automatic: return std::string("auto");
    case ReshardAfterForward::Mode::always: return true;
    case ReshardAfterForward::Mode::never: return false;
    case ReshardAfterForward::Mode::group: break;
  }
  return static_cast<std::int64_t>(value.group);
}

Value encode(const Wrap& value) {
  switch (value.mode) {
    case Wrap::Mode::block: return std::string("block");
    case Wrap::Mode::blocks: return fmt::format("blocks:{}", value.blocks);
    case Wrap::Mode::min_size: return fmt::format("size:{}", value.parameters);
    case Wrap::Mode::model: break;
  }
  return std::string("model");
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

bool decode(const Value& value, Prefetch& out) {
  using Mode = Prefetch::Mode;
  Prefetch read;
  if (is_text(value, "none")) {
    read.mode = Mode::none;
  } else if (is_text(value, "implicit")) {
    read.mode = Mode::implicit;
  } else if (is_text(value, "post")) {
    read.mode = Mode::post;
  } else if (is_text(value, "pre")) {
    read.mode = Mode::pre;
  } else if ((decode(value, read.depth) && read.depth >= 1) || decode_count(value, "explicit", read.depth)) {
    read.mode = Mode::explicit_;
  } else if (decode_count(value, "ahead", read.depth)) {
    read.mode = Mode::ahead;
  } else if (const auto window = argument(value, "window"); window && *window >= 0) {
    read.mode = Mode::window;
    read.elements = *window;
  } else if (const auto rate = argument(value, "rate"); rate && *rate >= 0) {
    read.mode = Mode::rate;
    read.elements = *rate;
  } else {
    return false;
  }
  out = read;
  return true;
}

bool decode(const Value& value, AllGatherLimit& out) {
  using Mode = AllGatherLimit::Mode;
  AllGatherLimit read;
  const std::string* text = text_of(value);
  if (is_text(value, "unlimited")) {
    read.mode = Mode::unlimited;
  } else if (is_text(value, "fsdp2_event")) {
    read.mode = Mode::fsdp2_event;
  } else if (is_text(value, "fsdp1_queue") || decode_count(value, "fsdp1_queue", read.count)) {
    read.mode = Mode::fsdp1_queue;
  } else if ((decode(value, read.count) && read.count >= 1) || decode_count(value, "strict", read.count)) {
    read.mode = Mode::strict;
  } else if (decode_count(value, "buffers", read.count)) {
    read.mode = Mode::buffers;
  } else if (decode_count(value, "fetched", read.count)) {
    read.mode = Mode::fetched;
  } else if (text != nullptr && text->starts_with("bytes:")) {
    const std::optional<std::int64_t> bytes = parse_bytes(std::string_view(*text).substr(6));
    if (!bytes || *bytes < 1) return false;
    read.mode = Mode::bytes;
    read.bytes = *bytes;
  } else {
    return false;
  }
  out = read;
  return true;
}

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

bool decode(const Value& value, Wrap& out) {
  using Mode = Wrap::Mode;
  Wrap read;
  if (is_text(value, "block")) {
    read.mode = Mode::block;
  } else if (is_text(value, "model")) {
    read.mode = Mode::model;
  } else if (const auto blocks = argument(value, "blocks"); blocks && *blocks >= 1) {
    read.mode = Mode::blocks;
    read.blocks = *blocks;
  } else if (const auto parameters = argument(value, "size"); parameters && *parameters >= 1) {
    read.mode = Mode::min_size;
    read.parameters = *parameters;
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
