// The real NCCL, as far as it goes without a GPU: it loads, makes an id, and says itself why it makes no communicator.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cuda/nccl/nccl_comm.h"
#include "backend/cuda/nccl/nccl_communicator.h"
#include "backend/cuda/nccl/nccl_version.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

class OwnIds : public IdExchange {
 public:
  std::string from_root(int /*rank*/, std::string bytes) override { return bytes; }
  void barrier(int /*rank*/) override {}
};

/// Lanes of a device that is not there.
class NoLanes : public LaneAccess {
 public:
  cudaStream_t stream(Lane /*lane*/) override { return nullptr; }
  void run_op(Lane /*lane*/, const char* /*name*/, const std::function<void(cudaStream_t)>& /*work*/,
              Stamp* /*stamp*/) override {}
  void watch(std::function<void()> /*check*/) override {}
  launch::Abort& abort() override { return abort_; }
  Kernels& kernels(Lane /*lane*/) override { throw BackendError("no kernels"); }

 private:
  launch::Abort abort_;
};

bool there_is_a_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

TEST(NcclLibrary, SaysItsVersionAndMakesAnId) {
  EXPECT_GE(nccl_runtime_version(), 21900);
  OwnIds ids;
  const ncclUniqueId id = exchange_nccl_id(ids, 0);
  EXPECT_NE(std::string(id.internal, sizeof id.internal), std::string(sizeof id.internal, '\0'));
}

TEST(NcclLibrary, WithoutAGpuItIsABackendErrorInNcclsOrCudasWords) {
  if (there_is_a_gpu()) GTEST_SKIP() << "this machine has a GPU, so that NCCL would not fail";
  NoLanes lanes;
  OwnIds ids;
  try {
    make_world_communicator(lanes, ids, 0, 2, {});
    FAIL() << "nothing was thrown";
  } catch (const BackendError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("CUDA driver version is insufficient"));
  }
}

TEST(NcclLibrary, WithoutAGpuNcclsInitializationFailsInItsOwnWords) {
  if (there_is_a_gpu()) GTEST_SKIP() << "this machine has a GPU, so that NCCL would not fail";
  OwnIds ids;
  const ncclUniqueId id = exchange_nccl_id(ids, 0);
  ncclConfig_t config = nccl_config({});
  ncclComm_t comm = nullptr;
  ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, 0, &config);
  while (result == ncclInProgress && comm != nullptr) ncclCommGetAsyncError(comm, &result);
  EXPECT_EQ(result, ncclUnhandledCudaError);
  EXPECT_THAT(nccl_words(result, comm), testing::HasSubstr("CUDA driver version is insufficient"));
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
