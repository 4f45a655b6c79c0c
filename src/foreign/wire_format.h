#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdpbench::foreign {

/// A message of protobuf, field after field, as it lies in the bytes. XLA's traces are of twenty messages, of which
/// some forty fields say all that is asked here: that is less than a library, whose version the wheel would have to
/// bring, and nothing in a hostile file is built that was not asked for.
class WireMessage {
 public:
  explicit WireMessage(std::string_view bytes) : rest_(bytes) {}

  /// Goes to the next field; false behind the last one, and where the bytes are none of a message (broken()).
  bool next();
  bool broken() const { return broken_; }

  std::uint32_t field() const { return field_; }
  std::int64_t integer() const { return integer_; }    ///< of a number; 0 of what is none
  std::string_view bytes() const { return bytes_; }    ///< of a text, bytes or a message; "" of a number
  void add_to(std::vector<std::int64_t>& list) const;  ///< adds a repeated number, packed or not

 private:
  bool varint(std::int64_t& value);

  std::string_view rest_, bytes_;
  std::int64_t integer_ = 0;
  std::uint32_t field_ = 0;
  bool is_bytes_ = false, broken_ = false;
};

// One field of a message: its last value, "" or 0 if there is none; all of its values.
std::string_view bytes_in(std::string_view message, std::uint32_t field);
std::int64_t integer_in(std::string_view message, std::uint32_t field);
std::vector<std::string_view> all_in(std::string_view message, std::uint32_t field);
std::vector<std::int64_t> integers_in(std::string_view message, std::uint32_t field);

}  // namespace fsdpbench::foreign
