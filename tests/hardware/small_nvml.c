// Answers of one A100-SXM4-40GB with MIG on and one 1g.10gb device; a second GPU that is lost. Only what the
// tests of the binding need. Layouts are written out by offset, apart from the binding's own declarations.
#include <stdint.h>
#include <string.h>

#define OK 0
#define LOST 15

static int inits;
int small_nvml_inits(void) {
  return inits;
}

int nvmlInit_v2(void) {
  return ++inits, OK;
}
int nvmlShutdown(void) {
  return --inits, OK;
}
const char* nvmlErrorString(int code) {
  return code == LOST ? "GPU is lost" : code == 3 ? "Not Supported" : "other";
}
int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return strncpy(out, "580.95.05", size), OK;
}
int nvmlSystemGetCudaDriverVersion(int* out) {
  return *out = 13000, OK;
}
int nvmlDeviceGetCount_v2(unsigned* out) {
  return *out = 2, OK;
}

static void* const gpu = (void*)0x10;
static void* const mig = (void*)0x20;

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) {
  if (index == 1) return LOST;
  return *out = gpu, OK;
}
int nvmlDeviceGetName(void* device, char* out, unsigned size) {
  return strncpy(out, device == gpu ? "NVIDIA A100-SXM4-40GB" : "MIG", size), OK;
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned size) {
  return strncpy(out, device == gpu ? "GPU-1" : "MIG-1", size), OK;
}
int nvmlDeviceGetMinorNumber(void* device, unsigned* out) {
  return (void)device, *out = 1, OK;
}
int nvmlDeviceGetPciInfo_v3(void* device, unsigned char* out) {
  (void)device;
  memset(out, 0, 68);
  uint32_t id = 0x20b010de;
  memcpy(out + 28, &id, 4);
  strcpy((char*)out + 36, "00000000:3B:00.0");
  return OK;
}
int nvmlDeviceGetMemoryInfo(void* device, uint64_t* out) {
  (void)device;
  out[0] = 42949672960ull, out[1] = 42949672960ull - 7, out[2] = 7;
  return OK;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  return (void)device, *major = 8, *minor = 0, OK;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  return (void)device, *current = 1, *pending = 1, OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* out) {
  return (void)device, *out = 7, OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** out) {
  (void)device;
  if (index == 1) return 2;
  if (index != 0) return 6;
  return *out = mig, OK;
}
int nvmlDeviceGetGpuInstanceId(void* device, unsigned* out) {
  return (void)device, *out = 3, OK;
}
int nvmlDeviceGetComputeInstanceId(void* device, unsigned* out) {
  return (void)device, *out = 0, OK;
}
int nvmlDeviceGetAttributes_v2(void* device, unsigned char* out) {
  (void)device;
  memset(out, 0, 40);
  uint64_t mib = 9856;
  memcpy(out + 32, &mib, 8);
  return OK;
}
int nvmlDeviceGetGpuInstanceById(void* device, unsigned id, void** out) {
  return (void)device, *out = (void*)(uintptr_t)(0x30 + id), OK;
}
int nvmlGpuInstanceGetComputeInstanceById(void* gi, unsigned id, void** out) {
  return (void)gi, *out = (void*)(uintptr_t)(0x40 + id), OK;
}
int nvmlGpuInstanceGetInfo(void* gi, unsigned char* out) {
  (void)gi;
  uint32_t profile = 15;
  memset(out, 0, 24);
  memcpy(out + 12, &profile, 4);
  return OK;
}
int nvmlComputeInstanceGetInfo_v2(void* ci, unsigned char* out) {
  (void)ci;
  return memset(out, 0, 32), OK;
}
int nvmlDeviceGetGpuInstanceProfileInfo(void* device, unsigned profile, uint32_t* out) {
  (void)device;
  if (profile != 9) return 3;
  memset(out, 0, 48);
  out[0] = 15;
  return OK;
}
int nvmlGpuInstanceGetComputeInstanceProfileInfo(void* gi, unsigned profile, unsigned engine, uint32_t* out) {
  (void)gi, (void)engine;
  if (profile != 0) return 3;
  return memset(out, 0, 36), OK;
}
