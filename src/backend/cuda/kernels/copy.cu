// Bytes to move: each element once from the source and once to the target.

#include "backend/cuda/kernels/launchers.h"

#include <type_traits>

#include "backend/cuda/kernels/copy_runs.cuh"
#include "backend/cuda/kernels/element.h"

namespace fsdpbench::backend::cuda {
namespace {

template <class From, class To>
struct Copy {
  const From* source;
  To* target;

  template <int N>
  __device__ void move(std::int64_t from, std::int64_t to) const {
    if constexpr (std::is_same_v<From, To>) {
      *reinterpret_cast<Pack<To, N>*>(target + to) = *reinterpret_cast<const Pack<From, N>*>(source + from);
    } else {
      store(target + to, load<N>(source + from));
    }
  }
  template <int N>
  __device__ void clear(std::int64_t to) const {
    store(target + to, Floats<N>{});
  }
};

}  // namespace

void copy_runs(cudaStream_t stream, const ConstElements& source, const Elements& target,
               std::span<const CopyRun> runs) {
  with_element_type(source.dtype, [&]<class From>(From) {
    with_element_type(target.dtype, [&]<class To>(To) {
      const Copy<From, To> body{elements<From>(source.memory), elements<To>(target.memory)};
      copy<kPackOf<From, To>>(stream, "copy_runs", body, runs, boundaries(source.memory, sizeof(From)),
                              boundaries(target.memory, sizeof(To)));
    });
  });
}

}  // namespace fsdpbench::backend::cuda
