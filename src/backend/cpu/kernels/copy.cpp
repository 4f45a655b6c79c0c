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

void cast(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype, std::int64_t count,
          float factor) {
  if (source_dtype == target_dtype && factor == 1.0F) {
    if (source != target) std::memmove(target, source, static_cast<std::size_t>(count * size_of(target_dtype)));
    return;
  }
  with_element_type(source_dtype, [&]<class From>(From) {
    with_element_type(target_dtype, [&]<class To>(To) {
      const From* const from = elements<From>(source);
      To* const to = elements<To>(target);
      for (std::int64_t i = 0; i < count; ++i) store(to[i], factor * load(from[i]));
    });
  });
}

void accumulate(const std::byte* source, DType source_dtype, float* target, std::int64_t count, float factor) {
  with_element_type(source_dtype, [&]<class T>(T) {
    const T* const from = elements<T>(source);
    for (std::int64_t i = 0; i < count; ++i) target[i] += factor * load(from[i]);
  });
}

void copy_runs(const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
               std::span<const CopyRun> runs) {
  const std::int64_t target_size = size_of(target_dtype);
  for (const CopyRun& run : runs) {
    if (run.rows > 0 && run.run > 0) {
      if (source_dtype == target_dtype) {
        for_each_row(run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
          std::memcpy(target + to * target_size, source + from * target_size,
                      static_cast<std::size_t>(count * target_size));
        });
      } else {
        with_element_type(source_dtype, [&]<class From>(From) {
          with_element_type(target_dtype, [&]<class To>(To) {
            for_each_row(run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
              convert(elements<From>(source) + from, elements<To>(target) + to, count);
            });
          });
        });
      }
    }
    if (run.zero_fill > 0) {
      const std::int64_t end = run.rows > 0 ? run.target + (run.rows - 1) * run.target_stride + run.run : run.target;
      std::memset(target + end * target_size, 0, static_cast<std::size_t>(run.zero_fill * target_size));
    }
  }
}

}  // namespace fsdpbench::backend::cpu
