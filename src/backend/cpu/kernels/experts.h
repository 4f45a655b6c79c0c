#pragma once

#include <vector>

#include "backend/cpu/kernels/matmul.h"
#include "backend/kernels.h"

/// A mixture of experts: whom tokens visit, their rows on the way there and back, and the products there.
namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void route(const RouteCall& call);
void route_backward(const RouteBackwardCall& call);
void dispatch(const DispatchCall& call);
void combine(const CombineCall& call);
void combine_backward(const CombineBackwardCall& call);
void regroup(const RegroupCall& call);
/// `sums` is scratch kept by the caller.
void grouped_gemm(Matmul& matmul, const GroupedGemm& gemm, std::vector<float>& sums);

}  // namespace fsdpbench::backend::cpu
