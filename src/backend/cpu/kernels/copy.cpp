#include "backend/cpu/kernels/copy.h"

#include <cstring>

#include "backend/cpu/kernels/element.h"

namespace fsdpbench::backend::cpu {
namespace {

template <class From, class To>
void convert(const From* source, To* target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(target[i], load(source[i]));
}

/// Calls `copy(source offset, target offset, count)` for each row of a run, or once where rows touch on both sides.
template <class Copy>
void for_each_row(const CopyRun& run, Copy&& copy) {
  if (run.source_stride == run.run && run.target_stride == run.run)
    return copy(run.source, run.target, run.rows * run.run);
  for (std::int64_t row = 0; row < run.rows; ++row) {
    copy(run.source + row * run.source_stride, run.target + row * run.target_stride, run.run);
  }
}

}  // namespace

void cast(const ConstElements& source, const Elements& target, std::int64_t count, float factor) {
  if (source.dtype == target.dtype && factor == 1.0F) {
    const auto bytes = static_cast<std::size_t>(count * size_of(target.dtype));
    if (source.memory != target.memory) std::memmove(target.memory, source.memory, bytes);
    return;
  }
  with_element_type(source.dtype, [&]<class From>(From) {
    with_element_type(target.dtype, [&]<class To>(To) {
      const From* const from = elements<From>(source.memory);
      To* const to = elements<To>(target.memory);
      for (std::int64_t i = 0; i < count; ++i) store(to[i], factor * load(from[i]));
    });
  });
}

void accumulate(const ConstElements& source, float* target, std::int64_t count, float factor) {
  with_element_type(source.dtype, [&]<class T>(T) {
    const T* const from = elements<T>(source.memory);
    for (std::int64_t i = 0; i < count; ++i) target[i] += factor * load(from[i]);
  });
}

void copy_runs(const ConstElements& source, const Elements& target, std::span<const CopyRun> runs) {
  const std::int64_t size = size_of(target.dtype);
  for (const CopyRun& run : runs) {
    if (run.rows > 0 && run.run > 0) {
      if (source.dtype == target.dtype) {
        for_each_row(run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
          std::memcpy(target.memory + to * size, source.memory + from * size, static_cast<std::size_t>(count * size));
        });
      } else {
        with_element_type(source.dtype, [&]<class From>(From) {
          with_element_type(target.dtype, [&]<class To>(To) {
            for_each_row(run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
              convert(elements<From>(source.memory) + from, elements<To>(target.memory) + to, count);
            });
          });
        });
      }
    }
    if (run.zero_fill > 0) {
      const std::int64_t end = run.rows > 0 ? run.target + (run.rows - 1) * run.target_stride + run.run : run.target;
      std::memset(target.memory + end * size, 0, static_cast<std::size_t>(run.zero_fill * size));
    }
  }
}

}  // namespace fsdpbench::backend::cpu
