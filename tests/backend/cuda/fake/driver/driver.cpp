// A driver without a device, as far as cuDNN asks one while it makes plans for a GPU that is only described: code can
// be loaded, and nothing runs.

#include <cstddef>

namespace {

constexpr int kSuccess = 0, kNoDevice = 100;
char library, kernel;

}  // namespace

extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kNoDevice;
}
int cuGetErrorString(int, const char** text) {
  *text = "there is no device";
  return kSuccess;
}
int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_NO_DEVICE";
  return kSuccess;
}
int cuLibraryLoadData(void** result, const void*, void*, void**, unsigned, void*, void**, unsigned) {
  *result = &library;
  return kSuccess;
}
int cuLibraryUnload(void*) { return kSuccess; }
int cuLibraryGetKernel(void** result, void*, const char*) {
  *result = &kernel;
  return kSuccess;
}
int cuKernelGetFunction(void** result, void*) {
  *result = &kernel;
  return kSuccess;
}
int cuKernelSetAttribute(int, int, void*, int) { return kSuccess; }
int cuFuncSetAttribute(void*, int, int) { return kSuccess; }

// cuDNN looks for these when it opens the driver, and calls none of them without a device.
#define NEVER_CALLED(name) \
  int name() { return kNoDevice; }
NEVER_CALLED(cuCtxGetCurrent)
NEVER_CALLED(cuCtxGetLimit)
NEVER_CALLED(cuCtxPopCurrent)
NEVER_CALLED(cuCtxPushCurrent)
NEVER_CALLED(cuDeviceGet)
NEVER_CALLED(cuKernelGetAttribute)
NEVER_CALLED(cuLaunchCooperativeKernel)
NEVER_CALLED(cuLaunchKernel)
NEVER_CALLED(cuLaunchKernelEx)
NEVER_CALLED(cuLibraryLoadFromFile)
NEVER_CALLED(cuLinkAddData)
NEVER_CALLED(cuLinkComplete)
NEVER_CALLED(cuLinkCreate)
NEVER_CALLED(cuLinkDestroy)
NEVER_CALLED(cuOccupancyMaxPotentialClusterSize)
NEVER_CALLED(cuStreamGetCtx)

}  // extern "C"
