#include "trace/json_diagnosis.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

namespace fsdpbench::trace {

class JsonDiagnosis::Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(JsonDiagnosis& diagnosis, std::string_view text) : diagnosis_(diagnosis), text_(text) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 2, column 11: syntax error while parsing …"
    const std::string_view text = error.what();
    const auto number_behind = [&](std::string_view word) {
      const std::size_t at = text.find(word);
      std::size_t number = 0;
      if (at != std::string_view::npos) {
        std::from_chars(text.data() + at + word.size(), text.data() + text.size(), number);
      }
      return number;
    };
    diagnosis_.byte_ = position;
    constexpr int kNumberOverflow = 406;  // of nlohmann-json; its words have no place, and are no words for people
    if (error.id == kNumberOverflow) {
      const std::string_view before = text_.substr(0, position);
      diagnosis_.line_ = 1 + static_cast<std::size_t>(std::ranges::count(before, '\n'));
      diagnosis_.column_ = before.size() - (before.rfind('\n') + 1);  // npos + 1 is 0
      diagnosis_.what_ = "a number that is larger than any that can be read";
      return false;
    }
    diagnosis_.line_ = number_behind(" line ");
    diagnosis_.column_ = number_behind(" column ");
    const std::size_t words = text.find(": ");
    diagnosis_.what_ = words == std::string_view::npos ? text : text.substr(words + 2);
    return false;
  }

 private:
  JsonDiagnosis& diagnosis_;
  std::string_view text_;
};

JsonDiagnosis::JsonDiagnosis(const std::string& text) {
  Reader reader(*this, text);
  nlohmann::json::sax_parse(text, &reader);
}

}  // namespace fsdpbench::trace
