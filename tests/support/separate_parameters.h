#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "plan/model_shapes.h"

namespace fsdpbench::plan {

/// Elements [first, first + numel) of a whole parameter as a parameter of its own.
struct SeparateParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t first = 0;
  int parameter = 0;  ///< index of the whole one
  std::int64_t numel() const;
};

inline std::int64_t SeparateParameter::numel() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Parameters where projections are separate, in their order: themselves, or each that one joins.
inline std::vector<SeparateParameter> separate_parameters(const std::vector<ParameterShape>& parameters) {
  std::vector<SeparateParameter> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterShape& parameter = parameters[i];
    SeparateParameter one{parameter.name, parameter.shape, 0, static_cast<int>(i)};
    if (parameter.parts > 1) one.shape[static_cast<std::size_t>(parameter.split)] *= parameter.parts;
    if (parameter.joined.empty()) all.push_back(one);
    for (const JoinedRows& rows : parameter.joined) {
      one.name = rows.name;
      one.shape.front() = rows.rows * parameter.parts;
      all.push_back(one);
      one.first += one.numel();
    }
  }
  return all;
}

}  // namespace fsdpbench::plan
