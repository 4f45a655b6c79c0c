#include "trace/event_reader.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>
#include <limits>

#include "trace/fields.h"
#include "trace/json_window.h"

namespace fsdpbench::trace {

void EventStream::key(const Field& field) {
  const bool opens_args = field.place == Place::args && !in_args_;
  json_.key(opens_args ? std::string_view(",\"args\":{\"") : std::string_view(",\""), field.name);
  in_args_ = in_args_ || opens_args;
}

void EventStream::head(char ph, std::string_view category, std::string_view name, Track track, std::int64_t time_ns) {
  json_.raw(first_ ? std::string_view("\n{\"ph\":\"") : std::string_view(",\n{\"ph\":\""));
  first_ = false;
  json_.raw(ph);
  json_.raw('"');
  if (!category.empty()) member(field::kCat, category);
  member(field::kName, name);
  member(field::kPid, track.pid);
  member(field::kTid, track.tid);
  key(field::kTs);
  json_.microseconds(time_ns - origin_ns_);
}

void EventStream::duration(std::int64_t ns) {
  key(field::kDur);
  json_.microseconds(ns);
}

void EventStream::member(const Field& field, std::int64_t value) {
  key(field);
  json_.integer(value);
}

void EventStream::member(const Field& field, std::string_view value) {
  key(field);
  json_.text(value);
}

void EventStream::arg(const Field& field, std::int64_t value) { member(field, value); }
void EventStream::arg(const Field& field, std::string_view value) { member(field, value); }

void EventStream::arg_number(const Field& field, double value) {
  key(field);
  json_.number(value);
}

void EventStream::arg_duration(const Field& field, std::int64_t ns) {
  key(field);
  json_.microseconds(ns);
}

void EventStream::end() {
  json_.raw(in_args_ ? std::string_view("}}") : std::string_view("}"));
  in_args_ = false;
}

void EventStream::name_track(std::string_view what, Track track, std::string_view name) {
  head('M', "", what, track, origin_ns_);
  arg(field::kTrackName, name);
  end();
}

void EventStream::sort_track(std::string_view what, Track track, int index) {
  head('M', "", what, track, origin_ns_);
  arg(field::kSortIndex, index);
  end();
}

void EventStream::flow(std::string_view category, std::int64_t id, Track from, std::int64_t from_ns, Track to,
                       std::int64_t to_ns) {
  head('s', category, category, from, from_ns);
  member(field::kId, id);
  end();
  head('f', category, category, to, to_ns);
  member(field::kId, id);
  member(field::kBp, "e");  // else it would end at the next slice
  end();
}
namespace {

namespace ondemand = simdjson::ondemand;

constexpr std::size_t kMostText = 1 << 16;           // of one text that is kept
constexpr std::size_t kMostMembers = 1 << 10;        // of one object that are kept
constexpr std::string_view kHostName = "host_name";  // kineto's, not ours
constexpr int kMostDepth = 1000;                     // of brackets in brackets

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A number by JSON's grammar, in one pass: nothing of another text. Integers that do not fit are saturated if they are
/// positive, and otherwise numbers that are none.
std::optional<Value> number_of(std::string_view text) {
  Value value{Value::Type::integer, 0, text};
  const char* p = text.data();
  const char* const end = p + text.size();
  const bool negative = p < end && *p == '-';
  if (negative) ++p;
  const char* const first = p;
  std::uint64_t whole = 0;
  constexpr std::ptrdiff_t kSafeDigits = 19;  // of which all numbers fit
  for (; p < end && is_digit(*p); ++p) whole = whole * 10 + static_cast<std::uint64_t>(*p - '0');
  const std::ptrdiff_t digits = p - first;
  if (digits == 0 || (*first == '0' && digits > 1)) return std::nullopt;
  if (p < end && *p == '.') {
    value.type = Value::Type::number;
    const char* const decimals = ++p;
    while (p < end && is_digit(*p)) ++p;
    if (p == decimals) return std::nullopt;
  }
  if (p < end && (*p == 'e' || *p == 'E')) {
    value.type = Value::Type::number;
    if (++p < end && (*p == '+' || *p == '-')) ++p;
    const char* const exponent = p;
    while (p < end && is_digit(*p)) ++p;
    if (p == exponent) return std::nullopt;
  }
  if (p != end) return std::nullopt;
  if (value.type == Value::Type::number) return value;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (digits < kSafeDigits || (digits == kSafeDigits && whole <= kMost)) {
    value.integer = negative ? -static_cast<std::int64_t>(whole) : static_cast<std::int64_t>(whole);
  } else if (std::uint64_t large = 0; std::from_chars(text.data(), end, value.integer).ec != std::errc{}) {
    if (std::from_chars(text.data(), end, large).ec == std::errc{}) {
      value.integer = std::numeric_limits<std::int64_t>::max();
    } else {
      value.type = Value::Type::number;
      value.integer = 0;
    }
  }
  return value;
}

/// One bit for a key: keys whose bits differ are different.
constexpr std::uint64_t bit_of(std::string_view key) {
  if (key.empty()) return 1;
  const unsigned mixed = static_cast<unsigned>(key.size()) * 7 + static_cast<unsigned char>(key.front()) * 3 +
                         static_cast<unsigned char>(key.back());
  return std::uint64_t{1} << mixed % 64;
}

/// Reads a document as its window moves over it: everything deeper than an event's args is only checked.
class EventsReader {
 public:
  EventsReader(std::istream& in, std::int64_t most_events, const TakeFault& fault,
               const std::function<void(const ParsedEvent&)>& event)
      : window_(*in.rdbuf()), most_events_(most_events), fault_(fault), event_function_(event) {}

  FileFacts read() {
    facts_.whole = document();
    facts_.bytes = window_.bytes();
    if (facts_.whole && !facts_.has_events) {
      fault_(ReadFault::structure, std::nullopt, "The file has no traceEvents list.");
    } else if (facts_.whole && !known_to_perfetto_) {
      fault_(ReadFault::structure, std::nullopt, "The file does not begin with {\" or [{, by which Perfetto knows it.");
    }
    return facts_;
  }

 private:
  /// Reading ends here, though this is no error of the JSON.
  struct Enough {};

  bool document() {
    try {
      const char first = window_.next();
      if (first != '{' && first != '[') return neither();
      window_.drop(1);
      list_form_ = facts_.has_events = first == '[';
      const char second = window_.next();
      known_to_perfetto_ = list_form_ ? second == '{' || second == ']' : second == '"';
      if (!(list_form_ ? events() : members())) return false;
      return window_.next() == 0 || invalid(list_form_ ? "[]" : "{}", window_.text());
    } catch (const Enough&) {
      return false;
    }
  }

  /// A text, a number, or nothing.
  bool neither() {
    window_.whole_value();
    if (const std::string_view text = window_.text(); !JsonDiagnosis(std::string(text)).valid())
      return invalid("", text);
    fault_(ReadFault::structure, std::nullopt, "The file is neither an object nor a list of events.");
    return false;
  }

  /// Behind the document's opening brace.
  bool members() {
    for (bool first = true;; first = false) {
      char c = window_.next();
      if (c == '}') {
        window_.drop(1);
        return true;
      }
      if (!first) {
        if (c != ',') return invalid("{\"a\":0", window_.text());
        window_.drop(1);
        c = window_.next();
      }
      if (c != '"') return invalid(first ? "{" : "{\"a\":0,", window_.text());
      if (!member()) return false;
    }
  }

  bool member() {
    const std::size_t length = window_.whole_text();
    if (length == 0) return unfinished("{", window_.text());
    std::string key;
    if (!check("{", length,
               [&](ondemand::value value) { key = std::string_view(value.get_string()).substr(0, kMostText); }))
      return false;
    window_.drop(length);
    if (window_.next() != ':') return invalid("{\"a\"", window_.text());
    window_.drop(1);
    const char c = window_.next();
    if (key == field::kTraceEvents.name && c == '[') {
      if (facts_.has_events) fault_(ReadFault::structure, std::nullopt, "traceEvents stands in the file twice.");
      facts_.has_events = true;
      window_.drop(1);
      return events();
    }
    const std::size_t bytes = window_.whole_value();
    if (bytes == 0) return unfinished("{\"a\":", window_.text());
    if (!check("{\"a\":", bytes, [&](ondemand::value value) { outside(key, value); })) return false;
    window_.drop(bytes);
    return true;
  }

  void outside(std::string_view key, ondemand::value value) {
    const ondemand::json_type type = value.type();
    if (key == field::kDistributedInfo.name && type == ondemand::json_type::object) return distributed(value);
    if (key == field::kDeviceProperties.name && type == ondemand::json_type::array) return devices(value);
    const Value fact = read(value, 1);
    if (key == kHostName && fact.is_text()) facts_.host = fact.text;
    if (!fact.is_integer()) return;
    if (key == field::kFsdpbenchSchema.name) facts_.has_schema = true;
    if (key == field::kSchemaVersionKey.name) facts_.schema = fact.integer;
    if (key == field::kBaseTime.name) facts_.base_time_ns = fact.integer;
  }

  void distributed(ondemand::value info) {
    facts_.has_distributed_info = true;
    for (auto member : info.get_object()) {
      const std::string name(std::string_view(member.unescaped_key()).substr(0, kMostText));
      ondemand::value inner = member.value();
      if (name == field::kGroupConfig.name && inner.type() == ondemand::json_type::array) {
        for (auto group : inner.get_array()) group_facts(group.value());
        continue;
      }
      const Value fact = read(inner, 2);
      if (name == field::kRank.name && fact.is_integer()) facts_.rank = fact.integer;
      if (name == field::kWorldSize.name && fact.is_integer()) facts_.world_size = fact.integer;
      if (name == field::kBackend.name && fact.is_text()) facts_.backend = fact.text;
    }
  }

  void group_facts(ondemand::value value) {
    if (value.type() != ondemand::json_type::object) {
      read(value, 3);
      return;
    }
    GroupFacts group;
    for (auto member : value.get_object()) {
      const std::string name(std::string_view(member.unescaped_key()).substr(0, kMostText));
      ondemand::value inner = member.value();
      if (name == field::kConfigRanks.name && inner.type() == ondemand::json_type::array) {
        for (auto rank : inner.get_array()) {
          if (const Value number = read(rank.value(), 5); number.is_integer()) group.ranks.push_back(number.integer);
        }
        continue;
      }
      const Value fact = read(inner, 4);
      if (name == field::kConfigName.name && fact.is_text()) group.name = fact.text;
      if (name == field::kConfigDescription.name && fact.is_text()) group.description = fact.text;
      if (name == field::kConfigRanks.name && fact.is_text()) group.ranks = listed_integers(fact.text);
      if (name == field::kConfigSize.name && fact.is_integer()) group.size = fact.integer;
    }
    if (facts_.groups.size() < FileFacts::kMostGroups) facts_.groups.push_back(std::move(group));
  }

  void devices(ondemand::value list) {
    for (auto element : list.get_array()) {
      ondemand::value device = element.value();
      if (device.type() != ondemand::json_type::object) {
        read(device, 2);
        continue;
      }
      for (auto member : device.get_object()) {
        const bool names = std::string_view(member.unescaped_key()) == field::kName.name;
        const Value fact = read(member.value(), 3);
        if (names && fact.is_text() && facts_.device.empty()) facts_.device = fact.text;
      }
    }
  }

  /// Behind the list's opening bracket.
  bool events() {
    bool after_comma = false;
    for (;;) {
      const char c = window_.next();
      if (c == ']') {
        if (after_comma) return invalid("[0,", window_.text());
        window_.drop(1);
        return true;
      }
      const std::size_t bytes = c == 0 ? 0 : window_.whole_values();
      if (bytes == 0) return unfinished(after_comma ? "[0," : "[", window_.text());
      if (!check("[", bytes, [&](ondemand::value value) { element(value); })) return false;
      window_.drop(bytes);
      const char behind = window_.next();
      if (behind == '}') return invalid("[0", window_.text());
      after_comma = behind == ',';
      if (after_comma) window_.drop(1);
    }
  }

  /// visit(each value of a list) of so many bytes; reports them if they are no JSON behind `before`.
  template <typename Visit>
  bool check(std::string_view before, std::size_t bytes, Visit&& visit) {
    const std::string_view list = window_.enclosed(bytes, '[', ']');
    bool valid = true;
    try {
      ondemand::document document = parser_.iterate(list.data(), list.size(), window_.room_behind());
      for (auto value : document.get_array()) visit(value.value());
    } catch (const simdjson::simdjson_error&) {
      valid = false;
    } catch (...) {
      window_.restore();
      throw;
    }
    window_.restore();
    return valid || invalid(before, window_.text().substr(0, bytes), before[0] == '[' ? "]" : "}");
  }

  void element(ondemand::value value) {
    if (value.type() != ondemand::json_type::object) {
      read(value, 2);
      fault_(ReadFault::structure, facts_.events, "An element of traceEvents is not an object.");
      ++facts_.events;
      return;
    }
    event_.index = facts_.events;
    event_.members.clear();
    event_.args.clear();
    std::uint64_t seen = 0, seen_args = 0;
    for (auto member : value.get_object()) {
      const std::string_view key = member.unescaped_key();
      ondemand::value inner = member.value();
      if (key != field::kArgs.name || inner.type() != ondemand::json_type::object) {
        keep(event_.members, seen, key, read(inner, 3));
        continue;
      }
      for (auto arg : inner.get_object()) {
        const std::string_view name = arg.unescaped_key();
        keep(event_.args, seen_args, name, read(arg.value(), 4));
      }
    }
    find_common();
    event_function_(event_);
    if (++facts_.events < most_events_) return;
    fault_(ReadFault::limit, std::nullopt,
           fmt::format("The file has more than {} events; the rest of it was not checked.", most_events_));
    throw Enough();
  }

  void find_common() {
    event_.ph = event_.category = event_.name = {};
    event_.begin_ns = event_.length_ns = std::nullopt;
    for (const auto& [key, value] : event_.members) {
      switch (key.size()) {
        case 2:
          if (key == field::kPh.name && value.is_text()) event_.ph = value.text;
          if (key == field::kTs.name) event_.begin_ns = nanoseconds(value);
          break;
        case 3:
          if (key == field::kCat.name && value.is_text()) event_.category = value.text;
          if (key == field::kDur.name) event_.length_ns = nanoseconds(value);
          break;
        case 4:
          if (key == field::kName.name && value.is_text()) event_.name = value.text;
          break;
        default: break;
      }
    }
  }

  /// All of it, which checks it; what is in an object is not kept.
  Value read(ondemand::value value, int depth) {
    if (depth > kMostDepth) {
      fault_(ReadFault::limit, facts_.events,
             fmt::format("Brackets stand in brackets {} deep; the file was not checked beyond.", kMostDepth));
      throw Enough();
    }
    switch (value.type()) {
      case ondemand::json_type::object:
        for (auto member : value.get_object()) {
          member.unescaped_key().value();
          read(member.value(), depth + 1);
        }
        return {Value::Type::object, 0, {}};
      case ondemand::json_type::array: {
        const char* const begin = value.raw_json_token().data();
        for (auto inner : value.get_array()) read(inner.value(), depth + 1);
        const std::size_t length = value.current_location().value() - begin;
        const std::size_t close = std::string_view(begin, length).rfind(']');
        return {Value::Type::list, 0, std::string_view(begin, close + 1).substr(0, kMostText)};
      }
      case ondemand::json_type::string:
        return {Value::Type::text, 0, std::string_view(value.get_string()).substr(0, kMostText)};
      default: break;
    }
    std::string_view token = value.raw_json_token();
    while (token.ends_with(' ') || token.ends_with('\n') || token.ends_with('\r') || token.ends_with('\t')) {
      token.remove_suffix(1);
    }
    if (const auto number = number_of(token)) return *number;
    if (token == "true" || token == "false") return {Value::Type::boolean, 0, {}};
    if (token != "null") throw simdjson::simdjson_error(simdjson::TAPE_ERROR);
    return {};
  }

  /// `seen`: bits of the keys before.
  void keep(Members& members, std::uint64_t& seen, std::string_view key, Value value) {
    key = key.substr(0, kMostText);
    const std::uint64_t bit = bit_of(key);
    if ((seen & bit) != 0 && find(members, key) != nullptr) {
      fault_(ReadFault::structure, event_.index, fmt::format("The key \"{}\" stands twice in one object.", key));
      return;
    }
    seen |= bit;
    if (members.size() < kMostMembers) members.emplace_back(key, value);
  }

  /// The text at the window's beginning is no JSON behind `before`, which stands for what was read. Always false.
  bool invalid(std::string_view before, std::string_view text, std::string_view after = {}) {
    const JsonDiagnosis diagnosis(fmt::format("{}{}{}", before, text, after));
    if (diagnosis.valid()) {
      fault_(ReadFault::json, std::nullopt,
             fmt::format("The file is not valid JSON (byte {} or later).", window_.position() + 1));
      return false;
    }
    const bool same_line = diagnosis.line() <= 1;
    fault_(ReadFault::json, std::nullopt,
           fmt::format("The file is not valid JSON (byte {}): parse error at line {}, column {}: {}",
                       window_.position() + diagnosis.byte() - before.size(), window_.lines() + diagnosis.line(),
                       same_line ? window_.column() + diagnosis.column() - before.size() : diagnosis.column(),
                       diagnosis.what()));
    return false;
  }

  /// Reports that the window holds no whole value: the file has ended, or the value is too long. Always false.
  bool unfinished(std::string_view before, std::string_view text) {
    const JsonDiagnosis diagnosis(fmt::format("{}{}", before, text));
    if (window_.ended()) {
      // Who writes the list while a program runs may be killed in the middle of an event, and only there.
      const std::size_t first = text.find_first_not_of(" \n\r\t");
      const bool in_an_event = first == std::string_view::npos || text[first] == '{';
      return list_form_ && in_an_event && diagnosis.ended_early() ? false : invalid(before, text);
    }
    if (!diagnosis.valid() && diagnosis.byte() < before.size() + text.size()) return invalid(before, text);
    fault_(ReadFault::limit, std::nullopt,
           fmt::format("A text, a number or another value of the file has more than {} MiB; the file was not "
                       "checked beyond it.",
                       JsonWindow::kMostValue >> 20U));
    return false;
  }

  JsonWindow window_;
  ondemand::parser parser_;
  std::int64_t most_events_;
  const TakeFault& fault_;
  const std::function<void(const ParsedEvent&)>& event_function_;
  FileFacts facts_;
  bool list_form_ = false, known_to_perfetto_ = false;
  ParsedEvent event_;
};

/// "12.3456" as 12345; nothing for exponents and the like.
std::optional<std::int64_t> plain_decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 24) return std::nullopt;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() - 9;
  std::int64_t value = 0;
  int decimals = -1;
  for (const char c : text) {
    if (c == '.' && decimals < 0) {
      decimals = 0;
    } else if (c < '0' || c > '9') {
      return std::nullopt;
    } else if (decimals < 3) {
      if (value > kMost / 10) return std::nullopt;
      value = value * 10 + (c - '0');
      if (decimals >= 0) ++decimals;
    }
  }
  for (int i = std::max(decimals, 0); i < 3; ++i) {
    if (value > kMost / 10) return std::nullopt;
    value *= 10;
  }
  return negative ? -value : value;
}

}  // namespace

std::optional<std::int64_t> nanoseconds(const Value& value) {
  if (!value.is_number() && !value.is_text()) return std::nullopt;
  if (const auto exact = plain_decimal(value.text)) return exact;
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stopped, error] = std::from_chars(value.text.data(), end, number);
  constexpr double kMost = 9e15;  // microseconds whose nanoseconds fit
  if (error != std::errc{} || stopped != end || !(std::abs(number) < kMost)) return std::nullopt;
  return std::llround(number * 1000.0);
}

std::vector<std::int64_t> listed_integers(std::string_view text) {
  std::vector<std::int64_t> numbers;
  if (!text.starts_with('[') || text.find("...") != std::string_view::npos) return numbers;
  for (std::size_t at = 1; at < text.size();) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    if (error != std::errc{}) break;
    numbers.push_back(number);
    at = end - text.data();
    while (at < text.size() && (text[at] == ',' || text[at] == ' ')) ++at;
  }
  return numbers;
}

FileFacts read_events(std::istream& in, std::int64_t most_events, const TakeFault& fault,
                      const std::function<void(const ParsedEvent&)>& event) {
  return EventsReader(in, most_events, fault, event).read();
}

}  // namespace fsdpbench::trace
