#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdlib>
#include <type_traits>

// Asked by the mutated copies of sources that mutants.py writes.
namespace mutants {

// One byte per mutant in the file $MUTANTS_REACHED, shared with the processes that a test starts.
inline unsigned char* map_reached() {
  const char* path = std::getenv("MUTANTS_REACHED");
  if (path == nullptr) {
    return nullptr;
  }
  const int file = ::open(path, O_RDWR);
  void* bytes = ::mmap(nullptr, ::lseek(file, 0, SEEK_END), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return bytes == MAP_FAILED ? nullptr : static_cast<unsigned char*>(bytes);
}

// True for the mutant that $MUTANT chooses.
inline bool on(int mutant) {
  static unsigned char* const reached = map_reached();
  static const int chosen = [] {
    const char* number = std::getenv("MUTANT");
    return number == nullptr ? -1 : std::atoi(number);
  }();
  if (reached != nullptr && reached[mutant] == 0) {
    reached[mutant] = 1;
  }
  return mutant == chosen;
}

// Instead of what has type T: a reference stays one, which nothing dangles behind.
template <class T>
decltype(auto) nothing() {
  if constexpr (std::is_lvalue_reference_v<T>) {
    static std::remove_cvref_t<T> empty{};
    return static_cast<T>(empty);
  } else {
    return std::remove_cvref_t<T>{};
  }
}

}  // namespace mutants
