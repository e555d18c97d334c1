// ELF files of an image.
#include <sys/mman.h>
#include <unistd.h>

#include "base/files.h"
#include "elf/elf.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace gpuop;
  Fd file(memfd_create("elf", MFD_CLOEXEC));
  if (!file || write(file.get(), data, size) != static_cast<ssize_t>(size)) return 0;
  auto info = elf::read_elf(file.get());
  auto notes = elf::read_section(file.get(), ".note.cuda.fwd_compatibility");
  if (notes) elf::note_description(*notes, "NVIDIA Corporation");
  static_cast<void>(info);
  return 0;
}
