#include "trace/event_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "trace/fields.h"

namespace fsdpbench::trace {
namespace {

constexpr std::size_t kScanPiece = 1 << 16;
constexpr std::size_t kMostText = 1 << 16;      // of one text that is kept
constexpr std::uint64_t kMostToken = 16 << 20;  // of one text or number that is read, which takes as much memory
constexpr std::size_t kMostMembers = 1 << 10;   // of one object that are kept

/// Passes bytes on and looks for `"rank":\s+(\d+)` in each line, as HTA does, and at how the file begins.
class ScanningBuffer final : public std::streambuf {
 public:
  explicit ScanningBuffer(std::streambuf& source) : source_(source), piece_(kScanPiece) {}
  std::optional<std::int64_t> searched_rank() const { return rank_; }
  std::uint64_t bytes() const { return bytes_; }
  const std::string& beginning() const { return beginning_; }
  /// To be called at the end of every text, number and bracket.
  void token_ended() { token_bytes_ = 0; }
  /// A text or number was too long: there was no more to read from there on.
  bool gave_up() const { return token_bytes_ > kMostToken; }

 protected:
  int_type underflow() override {
    if (gave_up()) return traits_type::eof();
    const std::streamsize count = source_.sgetn(piece_.data(), static_cast<std::streamsize>(piece_.size()));
    if (count <= 0) return traits_type::eof();
    setg(piece_.data(), piece_.data(), piece_.data() + count);
    bytes_ += static_cast<std::uint64_t>(count);
    token_bytes_ += static_cast<std::uint64_t>(count);
    for (std::streamsize i = 0; i < count && beginning_.size() < 2; ++i) {
      const char c = piece_[static_cast<std::size_t>(i)];
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') beginning_ += c;
    }
    if (!rank_) scan({piece_.data(), static_cast<std::size_t>(count)});
    return traits_type::to_int_type(piece_[0]);
  }

 private:
  void scan(std::string_view text) {
    constexpr std::string_view kKey = "\"rank\":";
    for (const char c : text) {
      if (matched_ < kKey.size()) {
        matched_ = c == kKey[matched_] ? matched_ + 1 : (c == '"' ? 1 : 0);
      } else if (digits_.empty() && (c == ' ' || c == '\t')) {
        blank_ = true;
      } else if (blank_ && c >= '0' && c <= '9' && digits_.size() < 9) {
        digits_ += c;
      } else {
        if (!digits_.empty()) {
          rank_ = std::stoll(digits_);
          return;
        }
        matched_ = c == '"' ? 1 : 0;
        blank_ = false;
      }
    }
  }

  std::streambuf& source_;
  std::vector<char> piece_;
  std::string beginning_;  // the first two bytes that are no white space
  std::uint64_t bytes_ = 0;
  std::uint64_t token_bytes_ = 0;  // read since the last token ended, or began
  std::size_t matched_ = 0;
  bool blank_ = false;
  std::string digits_;
  std::optional<std::int64_t> rank_;
};

/// Where in the document the parser is: everything deeper than an event's args is skipped.
class Handler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(ScanningBuffer& buffer, FileFacts& facts, std::int64_t most_events, Findings& findings,
          const std::function<void(const ParsedEvent&)>& event)
      : buffer_(buffer), facts_(facts), most_events_(most_events), findings_(findings), event_function_(event) {}

  bool null() override { return scalar({}); }
  bool boolean(bool) override { return scalar({Value::Type::boolean, 0, {}}); }
  bool number_integer(number_integer_t value) override {
    return scalar({Value::Type::integer, value, fmt::to_string(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMost = static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
    return scalar({Value::Type::integer, static_cast<std::int64_t>(std::min(value, kMost)), fmt::to_string(value)});
  }
  bool number_float(number_float_t, const string_t& text) override { return scalar({Value::Type::number, 0, text}); }
  bool string(string_t& text) override { return scalar({Value::Type::text, 0, text.substr(0, kMostText)}); }
  bool binary(binary_t&) override { return true; }
  bool key(string_t& name) override {
    buffer_.token_ended();
    key_ = name.substr(0, kMostText);
    return true;
  }
  bool start_object(std::size_t) override { return open(Value::Type::object); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Value::Type::list); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    if (buffer_.gave_up()) return false;
    std::string what = error.what();
    if (list_form_ && what.find("unexpected end of input") != std::string::npos) return false;  // may be cut off
    what.erase(0, what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2);
    findings_.add(Rule::json, std::nullopt, fmt::format("The file is not valid JSON (byte {}): {}", position, what));
    return false;
  }

 private:
  enum class Where : std::uint8_t { outside, top, distributed, events, event, args };

  bool scalar(Value value) {
    buffer_.token_ended();
    switch (where_) {
      case Where::outside: bad_top(); return false;
      case Where::distributed:
        if (skipped_ == 0 && key_ == field::kRank.name && value.is_integer()) facts_.rank = value.integer;
        return true;
      case Where::events:
        if (skipped_ == 0) not_an_object();
        return true;
      case Where::event:
      case Where::args:
        if (skipped_ == 0) keep(where_ == Where::event ? event_.members : event_.args, std::move(value));
        return true;
      case Where::top:
        if (skipped_ == 0 && key_ == field::kFsdpbenchSchema.name && value.is_integer()) facts_.has_schema = true;
        return true;
    }
    return true;
  }

  bool open(Value::Type type) {
    buffer_.token_ended();
    if (skipped_ > 0) {
      ++skipped_;
      return true;
    }
    switch (where_) {
      case Where::outside:
        list_form_ = type == Value::Type::list;
        facts_.has_events = list_form_;
        where_ = list_form_ ? Where::events : Where::top;
        return true;
      case Where::top:
        if (key_ == field::kTraceEvents.name && type == Value::Type::list) {
          if (facts_.has_events) findings_.add(Rule::structure, std::nullopt, "traceEvents stands in the file twice.");
          facts_.has_events = true;
          where_ = Where::events;
        } else if (key_ == field::kDistributedInfo.name && type == Value::Type::object) {
          facts_.has_distributed_info = true;
          where_ = Where::distributed;
        } else {
          ++skipped_;
        }
        return true;
      case Where::events:
        if (type == Value::Type::object) {
          event_.index = facts_.events;
          event_.members.clear();
          event_.args.clear();
          where_ = Where::event;
        } else {
          not_an_object();
          ++skipped_;
        }
        return true;
      case Where::event:
        if (key_ == field::kArgs.name && type == Value::Type::object) {
          where_ = Where::args;
          return true;
        }
        [[fallthrough]];
      case Where::args: keep(where_ == Where::event ? event_.members : event_.args, {type, 0, {}}); [[fallthrough]];
      case Where::distributed: ++skipped_; return true;
    }
    return true;
  }

  bool close() {
    buffer_.token_ended();
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    switch (where_) {
      case Where::args: where_ = Where::event; return true;
      case Where::event: where_ = Where::events; return finish_event();
      case Where::events: where_ = list_form_ ? Where::outside : Where::top; return true;
      case Where::distributed: where_ = Where::top; return true;
      default: where_ = Where::outside; return true;
    }
  }

  bool finish_event() {
    event_function_(event_);
    if (++facts_.events < most_events_) return true;
    findings_.add(Rule::limit, std::nullopt,
                  fmt::format("The file has more than {} events; the rest of it was not checked.", most_events_));
    return false;
  }

  void keep(Members& members, Value value) {
    if (find(members, key_) != nullptr) {
      findings_.add(Rule::structure, event_.index, fmt::format("The key \"{}\" stands twice in one object.", key_));
    } else if (members.size() < kMostMembers) {
      members.emplace_back(key_, std::move(value));
    }
  }
  void not_an_object() {
    findings_.add(Rule::structure, facts_.events, "An element of traceEvents is not an object.");
    ++facts_.events;
  }
  void bad_top() {
    findings_.add(Rule::structure, std::nullopt, "The file is neither an object nor a list of events.");
  }

  ScanningBuffer& buffer_;
  FileFacts& facts_;
  std::int64_t most_events_;
  Findings& findings_;
  const std::function<void(const ParsedEvent&)>& event_function_;
  Where where_ = Where::outside;
  int skipped_ = 0;  // open brackets of something that nothing looks at
  bool list_form_ = false;
  std::string key_;
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

FileFacts read_events(std::istream& in, std::int64_t most_events, Findings& findings,
                      const std::function<void(const ParsedEvent&)>& event) {
  FileFacts facts;
  ScanningBuffer buffer(*in.rdbuf());
  std::istream scanned(&buffer);
  Handler handler(buffer, facts, most_events, findings, event);
  const bool whole = facts.whole = nlohmann::json::sax_parse(scanned, &handler);
  facts.searched_rank = buffer.searched_rank();
  facts.bytes = buffer.bytes();
  if (buffer.gave_up()) {
    findings.add(Rule::limit, std::nullopt,
                 fmt::format("A text or number of the file has more than {} MiB; the file was not checked beyond it.",
                             kMostToken >> 20U));
  } else if (whole && !facts.has_events) {
    findings.add(Rule::structure, std::nullopt, "The file has no traceEvents list.");
  } else if (whole && buffer.beginning() != "{\"" && buffer.beginning() != "[{" && buffer.beginning() != "[]") {
    findings.add(Rule::structure, std::nullopt, "The file does not begin with {\" or [{, by which Perfetto knows it.");
  }
  return facts;
}

}  // namespace fsdpbench::trace
