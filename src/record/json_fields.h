#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/enum_table.h"
#include "record/json_part.h"
#include "record/table.h"

namespace fsdpbench::app {

/// Which way a figure has to go to be better.
enum class Better : std::uint8_t { less, more };

/// Treatment of a figure by `gate`.
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

/// Type of a value in a file: "number", "whole number", "text", "true or false", "object", "list of …", "map of …"
/// (values by name), "any". `object`: the fields of the object, or of the objects in the list or map.
struct TypeFacts {
  std::string name;
  const ObjectFacts* object = nullptr;
};

/// Condition under which a field is in a file.
enum class When : std::uint8_t {
  always,
  if_any,    ///< absent where it is empty, 0, false or not known
  if_known,  ///< absent where it is negative
  or_null,   ///< always; null where it is not known
};
using enum When;

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

/// Checks of what is read.
void check_positive(const JsonPart& number);
void check_not_negative(const JsonPart& number);
void check_share(const JsonPart& number);  ///< of a whole, as a fraction

template <class T>
class Fields;

/// The fields of an object of C++ type T: declared() is specialised once for each type, where its header says so.
template <class T>
Fields<T> declared();
template <class T>
const Fields<T>& fields() {
  static const Fields<T> kAll = declared<T>();
  return kAll;
}

/// Reader and writer of values of a type. An object by its fields.
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
template <>
struct JsonType<const char*> : JsonType<std::string_view> {};

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

template <class T>
inline constexpr bool kLeadsOn =
    std::is_pointer_v<std::remove_cv_t<T>> && !std::is_same_v<std::remove_cv_t<T>, const char*>;

/// `from` itself, or what it points to.
template <class From>
decltype(auto) follow(From& from) {
  if constexpr (kLeadsOn<From>) {
    return *from;
  } else {
    return (from);
  }
}

/// Value that `steps` lead to, one after the other. Where an optional on the way is empty, so is what is found.
template <class From, class Step, class... More>
decltype(auto) follow(From& from, const Step& step, const More&... more) {
  if constexpr (kLeadsOn<From>) {
    return follow(*from, step, more...);
  } else if constexpr (kIsOptional<std::remove_cv_t<From>> &&
                       (std::is_member_pointer_v<Step> || !std::invocable<const Step&, From&>)) {
    using Found = std::remove_cvref_t<decltype(follow(*from, step, more...))>;
    using Maybe = std::conditional_t<kIsOptional<Found>, Found, std::optional<Found>>;
    return from ? Maybe(follow(*from, step, more...)) : Maybe();
  } else if constexpr (std::is_lvalue_reference_v<std::invoke_result_t<const Step&, From&>>) {
    return follow(std::invoke(step, from), more...);
  } else {
    using Next = std::invoke_result_t<const Step&, From&>;
    if constexpr (sizeof...(More) == 0 && !kLeadsOn<Next>) {
      return Next(std::invoke(step, from));
    } else {
      const Next next = std::invoke(step, from);
      return std::remove_cvref_t<decltype(follow(next, more...))>(follow(next, more...));
    }
  }
}

/// The way to a value inside of an object: members, and functions of what is there. Pointers are followed.
template <class... Steps>
auto via(Steps... steps) {
  return [=](auto& object) -> decltype(auto) { return follow(object, steps...); };
}

/// Adds a field that is never read.
template <class... Steps>
auto written(Steps... steps) {
  return [=](const auto& object) {
    return std::remove_cvref_t<decltype(follow(object, steps...))>(follow(object, steps...));
  };
}

/// A value that is written and read as `Type` says, rather than as its C++ type is.
template <class Type, class Access>
struct As {
  Access access;
};
template <class Type, class... Steps>
auto as(Steps... steps) {
  return As<Type, decltype(via(steps...))>{via(steps...)};
}

/// Parts, each with the whole that it is of: for fields that need both.
template <class Whole, class Part>
std::vector<std::pair<const Whole*, const Part*>> each_of(const Whole& whole, const std::vector<Part>& parts) {
  std::vector<std::pair<const Whole*, const Part*>> all;
  for (const Part& part : parts) all.emplace_back(&whole, &part);
  return all;
}

/// The fields of something inside of T among T's own.
template <class Access, class Inner>
struct Spread {
  Access access;
  const Fields<Inner>* inner;  ///< null: those of the type
};
template <class Access>
Spread<Access, void> spread(Access access) {
  return {access, nullptr};
}
template <class Access, class Inner>
Spread<Access, Inner> spread(Access access, const Fields<Inner>& inner) {
  return {access, &inner};
}

/// The row is absent unless the object is so: a function of it, or a member that is there or not.
template <class Asked>
struct Only {
  Asked asked;
};
template <class Asked>
Only<Asked> when(Asked asked) {
  return {asked};
}

/// Completes an object by what follows from its fields.
template <class Complete>
struct Then {
  Complete complete;
};
template <class Complete>
Then<Complete> then(Complete complete) {
  return {complete};
}

/// Condition on several fields together.
struct Rule {
  void (*check)(const JsonPart&);
};

/// A figure that is better if it is less, or more.
inline FigureFacts less(std::string label, Gated gated = Gated::no) { return {std::move(label), Better::less, gated}; }
inline FigureFacts more(std::string label, Gated gated = Gated::no) { return {std::move(label), Better::more, gated}; }

/// A row of the table of an object's fields:
///     {"rank", &R::rank, "", "number of the rank"}
///     {"exposed_ms", via(&R::mean, &Mean::exposed_ns, in_ms), "ms", "time in which …", if_any}
/// name, value, unit and meaning; then, in any order, when it is there (if_any, if_known, or_null, when(…)), a check
/// of what is read, and what it is as a figure. A value is a member, or what a function gives; what leads to something
/// inside of T is also read. Other rows:
///     {"mesh", {"Mesh", "How ranks are arranged.", "plan/plan.h", {rows}}, when(is_sharded)}
/// an object of more values of the same T (several of one name are one object); spread(), then(), Rule, and several
/// rows in a vector.
template <class T>
class Field {
 public:
  using Json = nlohmann::json;

  template <class Access, class... More>
  Field(std::string name, Access access, std::string unit, std::string meaning, More... more) {
    FieldFacts facts{std::move(name), {}, std::move(unit), std::move(meaning), When::always, {}};
    (take(facts, more), ...);
    add<void>(std::move(facts), via(access));
  }
  template <class Type, class Access, class... More>
  Field(std::string name, As<Type, Access> as, std::string unit, std::string meaning, More... more) {
    FieldFacts facts{std::move(name), {}, std::move(unit), std::move(meaning), When::always, {}};
    (take(facts, more), ...);
    add<Type>(std::move(facts), as.access);
  }

  template <class... More>
  Field(std::string name, Fields<T> part, More... more) {
    const auto inner = std::make_shared<const Fields<T>>(std::move(part));
    FieldFacts facts{std::move(name), {"object", &inner->facts()}, "", inner->facts().meaning, When::always, {}};
    (take(facts, more), ...);
    write = [=, name = facts.name, is_there = is_there_](const T& object, Json& into) {
      if (!is_there || is_there(object)) inner->write(object, into[name]);
    };
    read = [=, name = facts.name, maybe = facts.when != When::always](const JsonPart& j, T& object) {
      if (!maybe || j.has(name)) inner->read(j.at(name), object);
    };
    all_facts.push_back(std::move(facts));
  }

  /// Those of an optional one are there, or are absent, together; a file has them if it has the first.
  template <class Access, class Inner>
  Field(Spread<Access, Inner> all) : Field(all, Only{nullptr}) {}
  template <class Access, class Inner, class Asked>
  Field(Spread<Access, Inner> all, Only<Asked> only) {
    const auto reach = via(all.access);
    using Value = std::remove_cvref_t<std::invoke_result_t<decltype(reach), const T&>>;
    const auto& inner = fields_of<Value>(all.inner);
    FieldFacts ignored;
    if constexpr (!std::is_null_pointer_v<Asked>) take(ignored, only);
    const bool optional = kIsOptional<Value> || is_there_;
    for (FieldFacts field : inner.facts().fields) {
      if (optional && field.when == When::always) field.when = When::if_any;
      all_facts.push_back(std::move(field));
    }
    write = [=, &inner, is_there = is_there_](const T& object, Json& into) {
      if (is_there && !is_there(object)) return;
      const auto& value = std::invoke(reach, object);
      if constexpr (kIsOptional<Value>) {
        if (value) inner.write(*value, into);
      } else {
        inner.write(value, into);
      }
    };
    if constexpr (is_readable<decltype(reach)>()) {
      read = [=, &inner](const JsonPart& j, T& object) {
        if (optional && !j.has(inner.facts().fields.front().name)) return;
        auto& value = std::invoke(reach, object);
        if constexpr (kIsOptional<Value>) {
          inner.read(j, value ? *value : value.emplace());
        } else {
          inner.read(j, value);
        }
      };
    }
  }

  template <class Complete>
  Field(Then<Complete> then) : read([=](const JsonPart&, T& object) { then.complete(object); }) {}
  Field(Rule rule) : read([=](const JsonPart& j, T&) { rule.check(j); }) {}

  Field(const std::vector<Field>& rows) {
    for (const Field& row : rows) all_facts.insert(all_facts.end(), row.all_facts.begin(), row.all_facts.end());
    write = [=](const T& object, Json& into) {
      for (const Field& row : rows) row.write(object, into);
    };
    read = [=](const JsonPart& j, T& object) {
      for (const Field& row : rows) row.read(j, object);
    };
  }

  std::vector<FieldFacts> all_facts;
  std::function<void(const T&, Json&)> write = [](const T&, Json&) {};
  std::function<void(const JsonPart&, T&)> read = [](const JsonPart&, T&) {};

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

  template <class Value, class Inner>
  static const auto& fields_of(const Fields<Inner>* given) {
    if constexpr (!std::is_void_v<Inner>) {
      return *given;
    } else if constexpr (kIsOptional<Value>) {
      return fields<typename Value::value_type>();
    } else {
      return fields<Value>();
    }
  }

  void take(FieldFacts& facts, When when) { facts.when = when; }
  void take(FieldFacts& facts, const char* meaning) { facts.meaning = meaning; }
  void take(FieldFacts& facts, FigureFacts figure) { facts.figure = std::move(figure); }
  void take(FieldFacts&, void (*check)(const JsonPart&)) { check_ = check; }
  template <class Asked>
  void take(FieldFacts& facts, Only<Asked> only) {
    facts.when = When::if_any;
    is_there_ = [only](const T& object) { return static_cast<bool>(std::invoke(only.asked, object)); };
  }

  template <class Type, class Access>
  void add(FieldFacts facts, Access access) {
    using Value = std::remove_cvref_t<std::invoke_result_t<Access, const T&>>;
    constexpr bool kMaybe = kIsOptional<Value>;
    using Content = typename decltype([] {
      if constexpr (kMaybe) {
        return std::type_identity<typename Value::value_type>();
      } else {
        return std::type_identity<Value>();
      }
    }())::type;
    using Inner = std::conditional_t<std::is_void_v<Type>, JsonType<Content>, Type>;
    facts.type = Inner::facts();
    if (kMaybe && facts.when == When::always) facts.when = When::if_any;
    write = [=, name = facts.name, when = facts.when, is_there = is_there_](const T& object, Json& into) {
      if (is_there && !is_there(object)) return;
      const auto& value = std::invoke(access, object);
      if constexpr (kMaybe) {
        if (value) {
          into[name] = Inner::write(*value);
        } else if (when == When::or_null) {
          into[name] = nullptr;
        }
      } else {
        if (when == When::if_any && !is_there && is_nothing(value)) return;
        if constexpr (std::signed_integral<Value>) {
          if (when == When::if_known && value < 0) return;
        }
        into[name] = Inner::write(value);
      }
    };
    if constexpr (is_readable<Access>() && can_read<Inner, Content>) {
      read = [=, name = facts.name, when = facts.when, check = check_](const JsonPart& j, T& object) {
        if (when != When::always && (!j.has(name) || (when == When::or_null && j.at(name).value().is_null()))) return;
        auto& value = std::invoke(access, object);
        if constexpr (kMaybe) {
          Inner::read(j.at(name), value.emplace());
        } else {
          Inner::read(j.at(name), value);
        }
        if (check != nullptr) check(j.at(name));
      };
    }
    all_facts.push_back(std::move(facts));
  }

  std::function<bool(const T&)> is_there_;
  void (*check_)(const JsonPart&) = nullptr;
};

/// The fields of an object, declared once: writing, reading, the page of the format and the Python package follow from
/// them.
template <class T>
class Fields {
 public:
  using Json = nlohmann::json;

  /// `source`: where the numbers are computed.
  Fields(std::string name, std::string meaning, std::string source, std::initializer_list<Field<T>> rows = {})
      : facts_{std::move(name), std::move(meaning), std::move(source), {}}, rows_(rows) {
    for (const Field<T>& row : rows_) {
      facts_.fields.insert(facts_.fields.end(), row.all_facts.begin(), row.all_facts.end());
    }
  }

  void write(const T& object, Json& into) const {
    if (into.is_null()) into = Json::object();
    for (const Field<T>& row : rows_) row.write(object, into);
  }
  Json write(const T& object) const {
    Json j;
    write(object, j);
    return j;
  }
  /// Throws ConfigError that names the key that is missing or wrong.
  void read(const JsonPart& j, T& into) const {
    for (const Field<T>& row : rows_) row.read(j, into);
  }
  T read(const JsonPart& j) const {
    T object{};
    read(j, object);
    return object;
  }

  const ObjectFacts& facts() const { return facts_; }

 private:
  ObjectFacts facts_;
  std::vector<Field<T>> rows_;
};

/// Table of objects with the same fields: a row a field, a column an object. What is an object or a list of objects
/// itself, or is in none of them, has no row. Sizes and times of all columns have one unit.
Table fields_table(const ObjectFacts& facts, const std::vector<std::pair<std::string, nlohmann::json>>& objects);

/// An object, or a list of them, with other fields than those of its type: Of() gives them.
template <auto Of>
struct ObjectOf {
  static nlohmann::json write(const auto& value) { return Of().write(value); }
  static void read(const JsonPart& j, auto& into) { Of().read(j, into); }
  static TypeFacts facts() { return {"object", &Of().facts()}; }
};

/// Reader and writer of a list whose objects have other fields than those of their type: Of() gives them.
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

/// An object of the values of an enum's names that are there: an optional that has one, or a number above 0.
template <class Enum, class Inner = void>
struct EnumMap {
  static nlohmann::json write(const auto& values) {
    nlohmann::json object = nlohmann::json::object();
    for (const Enum name : kEnumerators<Enum>) {
      const auto& value = values.begin()[static_cast<std::size_t>(name)];
      if constexpr (!std::is_void_v<Inner>) {
        object[to_string(name)] = Inner::write(value);
      } else if constexpr (requires { *value; }) {
        if (value) object[to_string(name)] = *value;
      } else if (value > 0) {
        object[to_string(name)] = value;
      }
    }
    return object;
  }
  static void read(const JsonPart& j, auto& values) {
    for (const Enum name : kEnumerators<Enum>) {
      auto& value = values.begin()[static_cast<std::size_t>(name)];
      if (!j.has(to_string(name))) continue;
      if constexpr (std::is_void_v<Inner>) {
        value = j.at(to_string(name)).number();
      } else {
        Inner::read(j.at(to_string(name)), value);
      }
    }
  }
  static TypeFacts facts() {
    if constexpr (std::is_void_v<Inner>) {
      return {"map of number"};
    } else {
      return {"map of " + Inner::facts().name};
    }
  }
};

/// The whole object, for types that write several of its members as one value.
inline constexpr auto kItself = [](auto& object) -> auto& { return object; };

/// A value for another rank, as its fields are declared.
template <class T>
std::string message_of(const T& value) {
  return json_line(JsonType<T>::write(value));
}

/// Messages of all ranks. Throws ConfigError that names the key that is missing or wrong.
template <class T>
std::vector<T> read_messages(const std::vector<std::string>& texts) {
  std::vector<T> all;
  for (const std::string& text : texts) {
    const nlohmann::json sent = parse_json(text);
    JsonType<T>::read(JsonPart(sent), all.emplace_back());
  }
  return all;
}

}  // namespace fsdpbench::app
