// Writes the smallest ELF64 shared object that the dynamic linker, ldconfig and readers of SONAMEs accept.
#include <elf.h>
#include <string.h>

#include "sim/state/state.h"

namespace gpuop::sim {

namespace {

struct Image {
  Elf64_Ehdr header{};
  Elf64_Phdr load{}, dynamic_segment{};
  Elf64_Dyn dynamic[8]{};
  Elf64_Sym symbols[1]{};
  Elf64_Word hash[4]{};  // one bucket, one symbol: the null one
  char strings[160]{};
};

#if defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_X86_64;
#endif

}  // namespace

std::string make_elf_object(const std::string& soname) {
  Image image;
  memcpy(image.header.e_ident, ELFMAG, SELFMAG);
  image.header.e_ident[EI_CLASS] = ELFCLASS64;
  image.header.e_ident[EI_DATA] = ELFDATA2LSB;
  image.header.e_ident[EI_VERSION] = EV_CURRENT;
  image.header.e_type = ET_DYN;
  image.header.e_machine = kMachine;
  image.header.e_version = EV_CURRENT;
  image.header.e_phoff = offsetof(Image, load);
  image.header.e_ehsize = sizeof(Elf64_Ehdr);
  image.header.e_phentsize = sizeof(Elf64_Phdr);
  image.header.e_phnum = 2;
  image.header.e_shentsize = sizeof(Elf64_Shdr);

  image.load.p_type = PT_LOAD;
  image.load.p_flags = PF_R | PF_W;  // the linker relocates the dynamic section in place
  image.load.p_filesz = image.load.p_memsz = sizeof(Image);
  image.load.p_align = 0x1000;
  image.dynamic_segment.p_type = PT_DYNAMIC;
  image.dynamic_segment.p_flags = PF_R | PF_W;
  image.dynamic_segment.p_offset = image.dynamic_segment.p_vaddr = image.dynamic_segment.p_paddr =
      offsetof(Image, dynamic);
  image.dynamic_segment.p_filesz = image.dynamic_segment.p_memsz = sizeof image.dynamic;
  image.dynamic_segment.p_align = 8;

  image.hash[0] = 1;
  image.hash[1] = 1;
  std::size_t room = sizeof image.strings - 2;
  memcpy(image.strings + 1, soname.data(), soname.size() < room ? soname.size() : room);

  Elf64_Dyn* d = image.dynamic;
  auto put = [&](Elf64_Sxword tag, Elf64_Xword value) { *d++ = Elf64_Dyn{tag, {value}}; };
  if (!soname.empty()) put(DT_SONAME, 1);
  put(DT_HASH, offsetof(Image, hash));
  put(DT_STRTAB, offsetof(Image, strings));
  put(DT_SYMTAB, offsetof(Image, symbols));
  put(DT_STRSZ, sizeof image.strings);
  put(DT_SYMENT, sizeof(Elf64_Sym));
  put(DT_NULL, 0);
  return std::string(reinterpret_cast<const char*>(&image), sizeof image);
}

}  // namespace gpuop::sim
