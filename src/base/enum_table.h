#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace fsdpbench {

/// Whether `Value` is an enumerator rather than a number cast to the enum's type: compilers print the name of the one
/// ("Lane::copy"), and the other as a cast ("(Lane)9").
template <auto Value>
consteval bool is_enumerator() {
  std::string_view text = __PRETTY_FUNCTION__;  // ends in "Value = ns::Lane::copy]" or "Value = (ns::Lane)9]"
  text.remove_prefix(text.rfind("Value = ") + std::string_view("Value = ").size());
  const std::size_t cast = text.rfind(')');  // also ends clang's "(anonymous namespace)", before "::"
  return cast == std::string_view::npos || text[cast + 1] == ':';
}

/// Enumerators of `Enum`, which must be 0, 1, 2 and so on.
template <class Enum, std::size_t First = 0>
requires std::is_enum_v<Enum>
consteval std::size_t count_enumerators() {
  if constexpr (is_enumerator<static_cast<Enum>(First)>()) {
    return count_enumerators<Enum, First + 1>();
  } else {
    return First;
  }
}
template <class Enum>
inline constexpr std::size_t kEnumCount = count_enumerators<Enum>();

/// All enumerators, in order.
template <class Enum>
inline constexpr std::array<Enum, kEnumCount<Enum>> kEnumerators = [] {
  std::array<Enum, kEnumCount<Enum>> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}();

/// One value for each enumerator, in their order. The compiler refuses a list of too few or too many: a new enumerator
/// does not compile until every table has a line for it.
template <class Enum, class T>
class EnumTable {
 public:
  static constexpr std::size_t kSize = kEnumCount<Enum>;

  constexpr EnumTable() : values_{} {}
  template <std::convertible_to<T>... Values>
  requires(sizeof...(Values) == kEnumCount<Enum>) constexpr EnumTable(Values&&... values)
      : values_{std::forward<Values>(values)...} {}  // NOLINT: as a list

  constexpr T& operator[](Enum key) { return values_[static_cast<std::size_t>(key)]; }
  constexpr const T& operator[](Enum key) const { return values_[static_cast<std::size_t>(key)]; }
  static constexpr std::size_t size() { return kSize; }
  constexpr auto begin() { return values_.begin(); }
  constexpr auto end() { return values_.end(); }
  constexpr auto begin() const { return values_.begin(); }
  constexpr auto end() const { return values_.end(); }

 private:
  std::array<T, kSize> values_;
};

/// The enumerators' names, or other words for them.
template <class Enum>
using EnumNames = EnumTable<Enum, std::string_view>;

}  // namespace fsdpbench
