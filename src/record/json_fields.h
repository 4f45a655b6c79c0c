#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/enum_table.h"
#include "record/json_part.h"

namespace fsdpbench::app {

/// Which way a figure has to go to be better.
enum class Better : std::uint8_t { less, more };

/// What `gate` does with a figure.
enum class Gated : std::uint8_t {
  no,        ///< nothing: it follows from others, or differs by chance
  judged,    ///< it must not be worse than in accepted results
  explains,  ///< a part of another one: by single numbers it decides nothing
};

/// A number by which results are compared or judged.
struct FigureFacts {
  std::string label;  ///< what tables and pages call it; empty: the field is no figure
  Better better = Better::less;
  Gated gated = Gated::no;
};

struct ObjectFacts;

/// What a value in a file is: "number", "whole number", "text", "true or false", "object", "list of …", "map of …"
/// (values by name), "any". `object`: the fields of the object, or of the objects in the list or map.
struct TypeFacts {
  std::string name;
  const ObjectFacts* object = nullptr;
};

/// When a field is in a file.
enum class When : std::uint8_t {
  always,
  if_any,    ///< absent where it is empty, 0, false or not known
  if_known,  ///< absent where it is negative
  null,      ///< always; null where it is not known
};

/// Everything about a field that a reader of the file wants to know.
struct FieldFacts {
  std::string name;
  TypeFacts type;
  std::string unit;  ///< "ms"; empty: none
  std::string meaning;
  When when = When::always;
  FigureFacts figure = {};
};

/// An object in a file: what it is, the source where its numbers are computed, and its fields.
struct ObjectFacts {
  std::string name;  ///< "Summary", also of its class in Python
  std::string meaning;
  std::string source;  ///< "account/statistics.h"
  std::vector<FieldFacts> fields;
};

/// What a field may have beside name, value, unit and meaning.
struct FieldOptions {
  When when = When::always;
  void (*check)(const JsonPart&) = nullptr;  ///< refuses values that nothing measures
  FigureFacts figure = {};
};

/// Checks for FieldOptions.
void check_positive(const JsonPart& number);
void check_not_negative(const JsonPart& number);

template <class T>
class Fields;

/// The fields of an object of C++ type T: specialised once for each type, where its header says so.
template <class T>
const Fields<T>& fields();

/// How values of a type are written and read. An object by its fields.
template <class T>
struct JsonType {
  static nlohmann::json write(const T& value) { return fields<T>().write(value); }
  static void read(const JsonPart& j, T& into) { fields<T>().read(j, into); }
  static TypeFacts facts() { return {"object", &fields<T>().facts()}; }
};

template <>
struct JsonType<double> {
  static nlohmann::json write(double value) { return value; }
  static void read(const JsonPart& j, double& into) { into = j.number(); }
  static TypeFacts facts() { return {"number"}; }
};

template <>
struct JsonType<bool> {
  static nlohmann::json write(bool value) { return value; }
  static void read(const JsonPart& j, bool& into) { into = j.flag(); }
  static TypeFacts facts() { return {"true or false"}; }
};

/// Counts, ranks, bytes. None of them is negative unless it is declared as SignedWhole.
template <std::integral T>
struct JsonType<T> {
  static constexpr std::int64_t kMost = sizeof(T) < 8 ? 1'000'000'000 : INT64_MAX;
  static nlohmann::json write(T value) { return value; }
  static void read(const JsonPart& j, T& into) { into = static_cast<T>(j.whole(0, kMost)); }
  static TypeFacts facts() { return {"whole number"}; }
};

struct SignedWhole : JsonType<std::int64_t> {
  static void read(const JsonPart& j, std::int64_t& into) { into = j.whole(INT64_MIN, INT64_MAX); }
};

template <>
struct JsonType<std::string> {
  static nlohmann::json write(const std::string& value) { return value; }
  static void read(const JsonPart& j, std::string& into) { into = j.text(); }
  static TypeFacts facts() { return {"text"}; }
};

template <>
struct JsonType<std::string_view> {
  static nlohmann::json write(std::string_view value) { return value; }
  static TypeFacts facts() { return {"text"}; }
};

/// By the enumerators' names.
template <class T>
requires std::is_enum_v<T>
struct JsonType<T> {
  static nlohmann::json write(T value) { return to_string(value); }
  static void read(const JsonPart& j, T& into) {
    const std::string name = j.text();
    std::vector<std::string_view> all;
    for (const T value : kEnumerators<T>) {
      all.push_back(to_string(value));
      if (all.back() == name) {
        into = value;
        return;
      }
    }
    j.refuse(fmt::format("one of \"{}\"", fmt::join(all, "\", \"")));
  }
  static TypeFacts facts() { return {"text"}; }
};

/// Anything, in JSON's own words.
template <>
struct JsonType<nlohmann::json> {
  static nlohmann::json write(const nlohmann::json& value) { return value; }
  static void read(const JsonPart& j, nlohmann::json& into) { into = j.value(); }
  static TypeFacts facts() { return {"any"}; }
};

template <class T>
struct JsonType<std::vector<T>> {
  static nlohmann::json write(const std::vector<T>& values) {
    nlohmann::json list = nlohmann::json::array();
    for (const T& value : values) list.push_back(JsonType<T>::write(value));
    return list;
  }
  static void read(const JsonPart& j, std::vector<T>& into) {
    into.clear();
    for (const JsonPart& value : j.list()) JsonType<T>::read(value, into.emplace_back());
  }
  static TypeFacts facts() {
    const TypeFacts one = JsonType<T>::facts();
    return {"list of " + one.name, one.object};
  }
};

/// An object of values by the names of an enum.
template <class Enum, class T>
struct JsonType<EnumTable<Enum, T>> {
  static nlohmann::json write(const EnumTable<Enum, T>& values) {
    nlohmann::json object;
    for (const Enum name : kEnumerators<Enum>) object[std::string(to_string(name))] = JsonType<T>::write(values[name]);
    return object;
  }
  static TypeFacts facts() {
    const TypeFacts one = JsonType<T>::facts();
    return {"map of " + one.name, one.object};
  }
};

/// An object of values by names that nobody knows beforehand.
template <class T>
struct JsonType<std::vector<std::pair<std::string, T>>> {
  using Values = std::vector<std::pair<std::string, T>>;
  static nlohmann::json write(const Values& values) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [name, value] : values) object[name] = JsonType<T>::write(value);
    return object;
  }
  static void read(const JsonPart& j, Values& into) {
    into.clear();
    for (const auto& [name, value] : j.members()) JsonType<T>::read(value, into.emplace_back(name, T()).second);
  }
  static TypeFacts facts() {
    const TypeFacts one = JsonType<T>::facts();
    return {"map of " + one.name, one.object};
  }
};

/// Empty, 0 or false.
template <class T>
bool is_nothing(const T& value) {
  if constexpr (requires { value.empty(); }) {
    return value.empty();
  } else if constexpr (std::equality_comparable<T> && std::default_initializable<T>) {
    return value == T();
  } else {
    return false;
  }
}

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// The fields of an object, declared once: writing, reading, the page of the format and the Python package follow from
/// them. A field's value is a member, or a function that gives a reference to something inside of T; both are written
/// and read. A function that gives a value is only written.
template <class T>
class Fields {
 public:
  using Json = nlohmann::json;

  /// `source`: where the numbers are computed.
  Fields(std::string name, std::string meaning, std::string source)
      : facts_{std::move(name), std::move(meaning), std::move(source), {}} {}

  /// `Type`: how the value is written, if not as its C++ type is.
  template <class Type = void, class Access>
  Fields& operator()(const std::string& name, Access access, std::string unit, std::string meaning,
                     FieldOptions options = {}) {
    using Found = std::invoke_result_t<Access, const T&>;
    using Value = std::remove_cvref_t<Found>;
    if constexpr (kIsOptional<Value>) {
      using Inner = std::conditional_t<std::is_void_v<Type>, JsonType<typename Value::value_type>, Type>;
      if (options.when == When::always) options.when = When::if_any;
      const bool null = options.when == When::null;
      note(name, Inner::facts(), std::move(unit), std::move(meaning), options);
      write_.push_back([=](const T& object, Json& into) {
        if (const auto& value = std::invoke(access, object)) {
          into[name] = Inner::write(*value);
        } else if (null) {
          into[name] = nullptr;
        }
      });
      if constexpr (is_readable<Access>() && can_read<Inner, typename Value::value_type>) {
        read_.push_back([=, check = options.check](const JsonPart& j, T& object) {
          if (!j.has(name) || (null && j.at(name).value().is_null())) return;
          Inner::read(j.at(name), std::invoke(access, object).emplace());
          if (check != nullptr) check(j.at(name));
        });
      }
    } else {
      using Inner = std::conditional_t<std::is_void_v<Type>, JsonType<Value>, Type>;
      note(name, Inner::facts(), std::move(unit), std::move(meaning), options);
      write_.push_back([=, when = options.when](const T& object, Json& into) {
        const auto& value = std::invoke(access, object);
        if (when == When::if_any && is_nothing(value)) return;
        if constexpr (std::signed_integral<Value>) {
          if (when == When::if_known && value < 0) return;
        }
        into[name] = Inner::write(value);
      });
      if constexpr (is_readable<Access>() && can_read<Inner, Value>) {
        read_.push_back([=, when = options.when, check = options.check](const JsonPart& j, T& object) {
          if (when != When::always && !j.has(name)) return;
          Inner::read(j.at(name), std::invoke(access, object));
          if (check != nullptr) check(j.at(name));
        });
      }
    }
    return *this;
  }

  /// An object in this one that has more values of the same T. Several parts of one name are one object.
  /// `is_there`: absent where it says false.
  Fields& part(const std::string& name, const Fields& inner, bool (*is_there)(const T&) = nullptr) {
    note(name, {"object", &inner.facts()}, "", inner.facts().meaning,
         {.when = is_there == nullptr ? When::always : When::if_any});
    write_.push_back([=, &inner](const T& object, Json& into) {
      if (is_there == nullptr || is_there(object)) inner.write(object, into[name]);
    });
    read_.push_back([=, &inner](const JsonPart& j, T& object) {
      if (is_there == nullptr || j.has(name)) inner.read(j.at(name), object);
    });
    return *this;
  }

  /// An object in this one that is written from something that T refers to.
  template <class Access, class Inner>
  Fields& object(const std::string& name, Access access, const Fields<Inner>& inner, std::string meaning,
                 bool (*is_there)(const T&) = nullptr) {
    note(name, {"object", &inner.facts()}, "", std::move(meaning),
         {.when = is_there == nullptr ? When::always : When::if_any});
    write_.push_back([=, &inner](const T& object, Json& into) {
      if (is_there == nullptr || is_there(object)) inner.write(std::invoke(access, object), into[name]);
    });
    return *this;
  }

  /// The fields of something inside of T, in this object itself. Those of an optional one are there, or are absent,
  /// together; a file has them if it has the first. `is_there`: absent where it says false.
  template <class Access, class Inner>
  Fields& spread(Access access, const Fields<Inner>& inner, bool (*is_there)(const T&) = nullptr) {
    using Value = std::remove_cvref_t<std::invoke_result_t<Access, const T&>>;
    for (FieldFacts field : inner.facts().fields) {
      const bool always = field.when == When::always;
      if (always && (kIsOptional<Value> || is_there != nullptr)) field.when = When::if_any;
      facts_.fields.push_back(std::move(field));
    }
    write_.push_back([=, &inner](const T& object, Json& into) {
      if (is_there != nullptr && !is_there(object)) return;
      const auto& value = std::invoke(access, object);
      if constexpr (kIsOptional<Value>) {
        if (value) inner.write(*value, into);
      } else {
        inner.write(value, into);
      }
    });
    if constexpr (is_readable<Access>()) {
      read_.push_back([=, &inner](const JsonPart& j, T& object) {
        const bool optional = kIsOptional<Value> || is_there != nullptr;
        if (optional && !j.has(inner.facts().fields.front().name)) return;
        auto& value = std::invoke(access, object);
        if constexpr (kIsOptional<Value>) {
          inner.read(j, value ? *value : value.emplace());
        } else {
          inner.read(j, value);
        }
      });
    }
    return *this;
  }

  /// What several fields must be together, checked before any is read; and what follows from them, after all are.
  Fields& rule(void (*check)(const JsonPart&)) {
    read_.insert(read_.begin(), [check](const JsonPart& j, T&) { check(j); });
    return *this;
  }
  Fields& then(void (*complete)(const JsonPart&, T&)) {
    read_.push_back(complete);
    return *this;
  }

  void write(const T& object, Json& into) const {
    if (into.is_null()) into = Json::object();
    for (const auto& one : write_) one(object, into);
  }
  Json write(const T& object) const {
    Json j;
    write(object, j);
    return j;
  }
  /// Throws ConfigError that names the key that is missing or wrong.
  void read(const JsonPart& j, T& into) const {
    for (const auto& one : read_) one(j, into);
  }
  T read(const JsonPart& j) const {
    T object{};
    read(j, object);
    return object;
  }

  const ObjectFacts& facts() const { return facts_; }

 private:
  template <class Type, class Value>
  static constexpr bool can_read = requires(const JsonPart& j, Value& value) {
    Type::read(j, value);
  };

  /// Whether `access` leads to something that can be set.
  template <class Access>
  static constexpr bool is_readable() {
    if constexpr (std::invocable<Access, T&>) {
      using Found = std::invoke_result_t<Access, T&>;
      return std::is_lvalue_reference_v<Found> && !std::is_const_v<std::remove_reference_t<Found>>;
    } else {
      return false;
    }
  }

  void note(const std::string& name, TypeFacts type, std::string unit, std::string meaning,
            const FieldOptions& options) {
    facts_.fields.push_back({name, std::move(type), std::move(unit), std::move(meaning), options.when, options.figure});
  }

  ObjectFacts facts_;
  std::vector<std::function<void(const T&, Json&)>> write_;
  std::vector<std::function<void(const JsonPart&, T&)>> read_;
};

/// How a list is written and read whose objects have other fields than those of their type: Of() gives them.
template <auto Of>
struct ListOf {
  static nlohmann::json write(const auto& values) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& value : values) list.push_back(Of().write(value));
    return list;
  }
  static void read(const JsonPart& j, auto& into) {
    for (const JsonPart& value : j.list()) Of().read(value, into.emplace_back());
  }
  static TypeFacts facts() { return {"list of object", &Of().facts()}; }
};

/// The whole object, for types that write several of its members as one value.
inline constexpr auto kItself = [](auto& object) -> auto& { return object; };

/// Fields<T> as a constant, filled in by `fill`.
template <class T, class Fill>
Fields<T> declare(std::string name, std::string meaning, std::string source, Fill fill) {
  Fields<T> all(std::move(name), std::move(meaning), std::move(source));
  fill(all);
  return all;
}

}  // namespace fsdpbench::app
