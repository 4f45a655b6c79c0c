#include "foreign/xla_groups.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <string>

namespace fsdpbench::foreign {
namespace {

constexpr std::int64_t kMostDevices = 1 << 20;

/// The product, or -1 above kMostDevices.
std::int64_t product_of(const std::vector<std::int64_t>& dims) {
  std::int64_t product = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 1 || dim > kMostDevices / product) return -1;
    product *= dim;
  }
  return product;
}

/// The numbers in "[2,4]" or "(1,0)" behind `from`.
std::vector<std::int64_t> listed(std::string_view text, char open, char close) {
  const std::size_t begin = text.find(open);
  if (begin == text.npos) return {};
  return numbers_in(text.substr(begin + 1, text.find(close, begin) - begin - 1));
}

IotaOrder iota_of(std::string_view text) {
  const std::size_t turned = text.find("]T(");
  return {listed(text, '[', ']'),
          turned == text.npos ? std::vector<std::int64_t>() : listed(text.substr(turned), '(', ')')};
}

/// Groups of equal size, one after another.
ReplicaGroups cut(const std::vector<int>& numbers, std::int64_t size) {
  ReplicaGroups groups;
  if (size < 1 || size > kMostDevices) return groups;
  groups.size = size;
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
  if (groups.lists.empty()) return groups;
  groups.size = static_cast<std::int64_t>(groups.lists.front().size());
  return groups;
}

}  // namespace

std::vector<std::int64_t> numbers_in(std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), number);
    if (error == std::errc{}) numbers.push_back(number);
    at = error == std::errc{} ? end : at + 1;
  }
  return numbers;
}

std::vector<int> iota_numbers(const IotaOrder& iota) {
  const std::int64_t count = product_of(iota.dims);
  if (count < 1) return {};
  const std::size_t n = iota.dims.size();
  std::vector<std::int64_t> order = iota.order;
  if (order.empty()) {
    order.resize(n);
    std::iota(order.begin(), order.end(), 0);
  }
  std::vector<std::int64_t> sorted = order;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != static_cast<std::int64_t>(i)) return {};
  }
  if (order.size() != n) return {};
  std::vector<std::int64_t> strides(n, 1), place(n, 0);
  for (std::size_t i = n; i-- > 1;) strides[i - 1] = strides[i] * iota.dims[i];
  std::vector<int> numbers;
  for (std::int64_t done = 0; done < count; ++done) {
    std::int64_t number = 0;
    for (std::size_t i = 0; i < n; ++i) number += place[i] * strides[static_cast<std::size_t>(order[i])];
    numbers.push_back(static_cast<int>(number));
    for (std::size_t i = n; i-- > 0;) {
      if (++place[i] < iota.dims[static_cast<std::size_t>(order[i])]) break;
      place[i] = 0;
    }
  }
  return numbers;
}

ReplicaGroups iota_groups(std::int64_t count, std::int64_t size, const IotaOrder& iota) {
  ReplicaGroups groups = cut(iota_numbers(iota), size);
  if (static_cast<std::int64_t>(groups.lists.size()) != count) groups.lists.clear();
  return groups;
}

ReplicaGroups mesh_groups(const std::vector<std::int64_t>& axes, const std::vector<std::int64_t>& named,
                          const std::vector<int>& devices) {
  IotaOrder iota{axes, {}};
  std::int64_t size = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (std::ranges::find(named, static_cast<std::int64_t>(i)) == named.end()) {
      iota.order.push_back(static_cast<std::int64_t>(i));
    }
  }
  for (const std::int64_t axis : named) {
    if (axis < 0 || axis >= static_cast<std::int64_t>(axes.size())) return {};
    const std::int64_t dim = axes[static_cast<std::size_t>(axis)];
    if (dim < 1 || dim > kMostDevices / size) return {};
    size *= dim;
    iota.order.push_back(axis);
  }
  std::vector<int> numbers = iota_numbers(iota);
  if (!devices.empty()) {
    if (devices.size() != numbers.size()) return {size, {}};
    for (int& number : numbers) number = devices[static_cast<std::size_t>(number)];
  }
  return cut(numbers, size);
}

ReplicaGroups parse_groups(std::string_view text) {
  if (text.starts_with('{')) return listed_groups(text);
  if (text.starts_with("mesh[")) {
    const std::size_t end = text.find(']');
    std::vector<std::int64_t> axes, named;
    std::map<std::string_view, std::int64_t> places;
    const auto quoted = [](std::string_view part, const auto& take) {
      for (std::size_t open = part.find('\''); open != part.npos;) {
        const std::size_t close = part.find('\'', open + 1);
        if (close == part.npos) return;
        take(part.substr(open + 1, close - open - 1), part.substr(close + 1));
        open = part.find('\'', close + 1);
      }
    };
    quoted(text.substr(0, end), [&](std::string_view name, std::string_view behind) {
      std::int64_t size = 0;
      if (behind.starts_with('=')) std::from_chars(behind.data() + 1, behind.data() + behind.size(), size);
      places.emplace(name, static_cast<std::int64_t>(axes.size()));
      axes.push_back(size);
    });
    const std::size_t braces = end == text.npos ? text.npos : text.find('{', end);
    if (braces == text.npos) return {};
    bool whole = true;  // 'axis_0':(1)2 is a part of an axis, which is not read
    quoted(text.substr(braces), [&](std::string_view name, std::string_view behind) {
      const auto place = places.find(name);
      whole = whole && place != places.end() && !behind.starts_with(':');
      if (whole) named.push_back(place->second);
    });
    if (!whole) return {};
    std::vector<int> devices;
    if (const std::size_t ids = text.substr(0, braces).find("device_ids=("); ids != text.npos) {
      const std::string_view list = text.substr(ids + 12, braces - ids - 12);
      devices = iota_numbers(iota_of(list));
    }
    return mesh_groups(axes, named, devices);
  }
  const std::size_t arrow = text.find("<=");
  if (!text.starts_with('[') || arrow == text.npos) return {};
  const std::vector<std::int64_t> shape = listed(text.substr(0, arrow), '[', ']');
  if (shape.size() != 2) return {};
  return iota_groups(shape[0], shape[1], iota_of(text.substr(arrow)));
}

}  // namespace fsdpbench::foreign
