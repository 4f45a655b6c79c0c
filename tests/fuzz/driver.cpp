// Feeds a parser damaged files for some seconds: bytes flipped, cut, repeated, swapped and spliced from its seeds and
// from words that formats care about. A finding is a crash, a sanitizer report, a hang, or an exception that is not a
// message for the user; the input that did it is left behind and named.
//   TARGET SOURCE_FOLDER SECONDS [SEED]
#include <fmt/format.h>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 20000;
constexpr const char* kWords[] = {"\"",      "\\",     "{",    "}",        "[",
                                  "]",       "[[",     "=",    ",",        ":",
                                  "\n",      "\0x",    "-1",   "1e999",    "99999999999999999999",
                                  "nan",     "null",   "true", "\xff\xfe", "\xf0\x9f\x98\x80",
                                  "\\u0000", "\"\"\"", "'''",  "#"};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  std::string next() {
    std::string text = any(corpus_);
    for (std::size_t times = 1 + below(6); times > 0; --times) damage(text);
    if (text.size() > kMostBytes) text.resize(kMostBytes);
    return text;
  }

 private:
  std::size_t below(std::size_t n) {
    return n == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }
  const std::string& any(const std::vector<std::string>& list) { return list[below(list.size())]; }

  void damage(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 64) + 1);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, kWords[below(std::size(kWords))]); break;
      case 3: text.insert(at, text.substr(at, length)); break;
      case 4: text.resize(at); break;
      case 5: {
        const std::string& other = any(corpus_);
        text.insert(at, other.substr(below(other.size() + 1), length));
        break;
      }
      case 6: text.insert(at, std::string(below(2000), "[{(\"\\"[below(5)])); break;  // deep nesting, long runs
    }
  }

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: {} SOURCE_FOLDER SECONDS [SEED]\n", argv[0]);
    return 2;
  }
  const fsdpbench::fuzz::Target target = fsdpbench::fuzz::target();
  std::vector<std::string> corpus{"", "{}", "[]"};
  for (const std::string& seed : target.seeds) corpus.push_back(read(fs::path(argv[1]) / seed).substr(0, kMostBytes));
  corpus.insert(corpus.end(), target.texts.begin(), target.texts.end());
  Mutator mutator(corpus, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);

  const fs::path folder = fs::temp_directory_path() / fmt::format("fsdpbench-fuzz-{}-{}", target.name, getpid());
  fs::create_directories(folder);
  const fs::path path = folder / target.file;
  const std::int64_t end = fsdpbench::now_ns() + static_cast<std::int64_t>(std::strtod(argv[2], nullptr) * 1e9);
  std::int64_t inputs = 0, accepted = 0, slowest = 0;
  for (; fsdpbench::now_ns() < end; ++inputs) {
    write(path, mutator.next());
    const std::int64_t begin = fsdpbench::now_ns();
    try {
      fsdpbench::fuzz::parse(path.string());
      ++accepted;
    } catch (const fsdpbench::Error&) {
      // A message for the user.
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {} is not a message for the user: {}\n", target.name, path.string(), error.what());
      return 1;
    }
    slowest = std::max(slowest, fsdpbench::now_ns() - begin);
  }
  fs::remove_all(folder);
  fmt::print("{}: {} inputs, {} accepted, slowest {:.1f} ms, no finding\n", target.name, inputs, accepted,
             static_cast<double>(slowest) / 1e6);
  return 0;
}
