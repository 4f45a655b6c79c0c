#include <algorithm>
#include <charconv>
#include <numeric>

#include "foreign/xla_module.h"

namespace fsdpbench::foreign {
namespace {

constexpr std::int64_t kMostDevices = 1 << 20;
using Numbers = std::vector<std::int64_t>;

/// Numbers of "[2,4]" or "(1,0)", the first that `text` has.
Numbers listed(std::string_view text, char open, char close) {
  const std::size_t begin = text.find(open);
  if (begin == text.npos) return {};
  return numbers_in(text.substr(begin + 1, text.find(close, begin) - begin - 1));
}

/// The numbers from 0 laid out in rows of `dims`, read with the axes in the order `order` (empty: as they are); nothing
/// if the two do not fit each other or there are too many.
std::vector<int> laid_out(const Numbers& dims, Numbers order) {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 1 || dim > kMostDevices / count) return {};
    count *= dim;
  }
  Numbers axes(dims.size()), strides(dims.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (order.empty()) order = axes;
  if (!std::ranges::is_permutation(order, axes)) return {};
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  std::vector<int> numbers{0};
  for (const std::int64_t axis : order) {
    std::vector<int> longer;
    const auto one = static_cast<std::size_t>(axis);
    for (const int number : numbers) {
      for (std::int64_t i = 0; i < dims[one]; ++i) longer.push_back(number + static_cast<int>(i * strides[one]));
    }
    numbers = std::move(longer);
  }
  return numbers;
}

/// Devices of "[4,2]T(1,0)".
std::vector<int> iota_of(std::string_view text) {
  const std::size_t turned = text.find("]T(");
  return laid_out(listed(text, '[', ']'), turned == text.npos ? Numbers() : listed(text.substr(turned), '(', ')'));
}

/// Groups of equal size, one after another.
ReplicaGroups cut(const std::vector<int>& numbers, std::int64_t size) {
  if (size < 1 || size > kMostDevices) return {};
  ReplicaGroups groups{size, {}};
  if (numbers.size() % static_cast<std::size_t>(size) != 0) return groups;
  for (auto at = numbers.begin(); at != numbers.end(); at += size) groups.lists.emplace_back(at, at + size);
  return groups;
}

ReplicaGroups listed_groups(std::string_view text) {
  ReplicaGroups groups;
  std::int64_t devices = 0;
  for (std::size_t open = text.find('{', 1); open != text.npos; open = text.find('{', open + 1)) {
    std::vector<int>& list = groups.lists.emplace_back();
    for (const std::int64_t id : listed(text.substr(open), '{', '}')) {
      if (id < 0 || id >= kMostDevices || ++devices > kMostDevices) return {};
      list.push_back(static_cast<int>(id));
    }
  }
  if (!groups.lists.empty()) groups.size = static_cast<std::int64_t>(groups.lists.front().size());
  return groups;
}

/// The names in quotes, and what is behind each: of "['a'=4,'b'=2]" 'a' and "=4,".
std::vector<std::pair<std::string_view, std::string_view>> names_in(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> names;
  for (std::size_t open = text.find('\''); open != text.npos;) {
    const std::size_t close = text.find('\'', open + 1);
    if (close == text.npos) break;
    const std::size_t next = text.find('\'', close + 1);
    names.emplace_back(text.substr(open + 1, close - open - 1), text.substr(close + 1, next - close - 1));
    open = next;
  }
  return names;
}

ReplicaGroups mesh_groups(std::string_view text) {
  const std::size_t end = text.find(']'), braces = text.find('{', std::min(end, text.size()));
  if (braces == text.npos) return {};
  const auto axes = names_in(text.substr(0, end));
  constexpr std::size_t kMostAxes = 64;
  if (axes.size() > kMostAxes) return {};
  Numbers dims, named, order;
  for (const auto& [name, behind] : axes) {
    dims.push_back(number_behind("", behind));
    order.push_back(std::ssize(order));
  }
  for (const auto& [name, behind] : names_in(text.substr(braces))) {
    named.push_back(std::ranges::find(axes, name, [](const auto& one) { return one.first; }) - axes.begin());
    // 'axis_0':(1)2 is a part of an axis, which is not read
    if (named.back() == std::ssize(axes) || behind.starts_with(':')) return {};
    std::erase(order, named.back());
  }
  order.insert(order.end(), named.begin(), named.end());
  std::vector<int> numbers = laid_out(dims, order);
  if (numbers.empty()) return {};
  std::int64_t size = 1;
  for (const std::int64_t axis : named) size *= dims[axis];
  if (const std::size_t ids = text.substr(0, braces).find("device_ids="); ids != text.npos) {
    const std::string_view list = text.substr(ids, braces - ids);
    std::vector<int> devices;
    if (list.find('[') != list.npos) devices = iota_of(list);
    for (const std::int64_t id : devices.empty() ? numbers_in(list) : Numbers())
      devices.push_back(static_cast<int>(id));
    if (devices.size() != numbers.size()) return {size, {}};
    for (int& number : numbers) number = devices[number];
  }
  return cut(numbers, size);
}

}  // namespace

std::vector<std::int64_t> numbers_in(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
    std::int64_t number = 0;
    const auto [behind, error] = std::from_chars(at, end, number);
    if (error == std::errc{}) numbers.push_back(number);
    at = error == std::errc{} ? behind : at + 1;
  }
  return numbers;
}

std::int64_t number_behind(std::string_view key, std::string_view text) {
  std::int64_t number = -1;
  const std::size_t at = text.find_first_of("-0123456789", std::min(text.find(key), text.size()) + key.size());
  if (at != text.npos) std::from_chars(text.data() + at, text.data() + text.size(), number);
  return number;
}

ReplicaGroups parse_groups(std::string_view text) {
  if (text.starts_with('{')) return listed_groups(text);
  if (text.starts_with("mesh[")) return mesh_groups(text);
  const std::size_t arrow = text.find("<=");
  const Numbers shape = listed(text.substr(0, arrow), '[', ']');
  if (arrow == text.npos || shape.size() != 2) return {};
  ReplicaGroups groups = cut(iota_of(text.substr(arrow)), shape[1]);
  if (std::ssize(groups.lists) != shape[0]) groups.lists.clear();
  return groups;
}

}  // namespace fsdpbench::foreign
