#include "app/commands/ask_ras.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/read_input.h"
#include "launch/addresses.h"
#include "launch/socket.h"
#include "record/json_part.h"

namespace fsdpbench::app {
namespace {

/// One connection, of which everything together has so much time.
class Conversation {
 public:
  Conversation(const Endpoint& endpoint, double patience_s)
      : endpoint_(endpoint), deadline_(launch::deadline_in(patience_s)) {
    std::string error;
    socket_ = launch::connect_to(endpoint.host, endpoint.port, deadline_, error);
    if (!socket_) fail(fmt::format("nobody answers there: {}.", error));
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(fmt::format("{} {}: {}", endpoint_.option, endpoint_.name(), why));
  }

  /// Orders are short: a socket takes them at once.
  void say(std::string_view text) {
    if (socket_.send(text.data(), text.size()).bytes != text.size()) fail("the connection was closed.");
  }

  /// One line without its end.
  std::string line() {
    std::size_t end = 0;
    while ((end = heard_.find('\n')) == std::string::npos) {
      if (heard_.size() > kMostOfALine) fail("what answers there is not NCCL's RAS: its answer has no lines.");
      if (!hear()) fail("the connection was closed before there was an answer.");
    }
    std::string text = heard_.substr(0, end);
    heard_.erase(0, end + 1);
    return text;
  }

  std::string rest() {
    while (hear()) {
      if (heard_.size() > static_cast<std::size_t>(kMostOfAResult)) fail("the answer has more than 64 MiB.");
      if (std::chrono::steady_clock::now() >= deadline_) fail("there was no whole answer in time.");
    }
    return std::move(heard_);
  }

 private:
  static constexpr std::size_t kMostOfALine = 4096;

  /// False once the other side has closed.
  bool hear() {
    std::array<char, 65536> piece{};
    for (;;) {
      const auto moved = socket_.receive(piece.data(), piece.size());
      heard_.append(piece.data(), moved.bytes);
      if (moved.bytes > 0) return true;
      if (moved.closed) return false;
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
      pollfd wanted{socket_.fd(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&wanted, 1, static_cast<int>(left.count()) + 1) == 0) {
        fail("there was no whole answer in time.");
      }
    }
  }

  Endpoint endpoint_;
  launch::Deadline deadline_;
  launch::Socket socket_;
  std::string heard_;
};

/// The status of a job in JSON (client protocol 2; src/ras/client.cc of NCCL). Throws ConfigError with a sentence where
/// nobody answers, or something else does.
std::string ask_ras(const Endpoint& endpoint, double patience_s) {
  Conversation ras(endpoint, patience_s);
  ras.say("CLIENT PROTOCOL 2\n");
  if (const std::string said = ras.line(); !said.starts_with("SERVER PROTOCOL ")) {
    ras.fail(fmt::format("what answers there is not NCCL's RAS: it says '{}'.", clean_text(said, kMostOfACell)));
  }
  const std::string timeout = fmt::format("TIMEOUT {:.0f}\n", std::clamp(patience_s / 2, 1.0, 5.0));
  for (const std::string_view order : {std::string_view(timeout), std::string_view("SET FORMAT json\n")}) {
    ras.say(order);
    if (const std::string said = ras.line(); said != "OK") {
      ras.fail(fmt::format("RAS answers '{}' to '{}'; NCCL has JSON from 2.28.7 on.", clean_text(said, kMostOfACell),
                           order.substr(0, order.size() - 1)));
    }
  }
  ras.say("STATUS\n");
  return ras.rest();
}

/// NCCL 2.28.7 to 2.28.9 leave out the comma between the number of a missing rank's GPU and its status.
std::string with_commas(std::string text) {
  for (std::size_t at = text.find("\"status\""); at != std::string::npos; at = text.find("\"status\"", at + 2)) {
    const std::size_t last = text.find_last_not_of(" \t\r\n", at - 1);
    if (at > 0 && last != std::string::npos && text[last] >= '0' && text[last] <= '9') text.insert(last + 1, ",");
  }
  return text;
}

/// One rank of a communicator as RAS tells it.
struct RasRank {
  int rank = 0;
  std::int64_t count = -1;  ///< of collectives that its host has handed over; -1: RAS has no data of it
  bool is_lost = false, is_dead = false;
  std::string process;  ///< "process 4711 on 10.0.0.2, GPU 3"
};

struct RasCommunicator {
  std::string name;
  std::vector<RasRank> ranks;
  bool ends = false;  ///< some rank finalizes, destroys or aborts it, or it still starts
  std::int64_t most = -1, least = std::numeric_limits<std::int64_t>::max();  ///< of the counts
};

RasCommunicator read_communicator(const nlohmann::json& from) {
  RasCommunicator one;
  one.name = clean_text(from.at("hash").get<std::string>(), kMostOfACell);
  for (const bool is_missing : {false, true}) {
    for (const auto& told : from.at(is_missing ? "missing_ranks" : "ranks")) {
      RasRank& rank = one.ranks.emplace_back();
      rank.rank = told.at("rank").get<int>();
      rank.process = fmt::format("process {} on {}, GPU {}", told.at("pid").get<std::int64_t>(),
                                 clean_text(told.at("host").get<std::string>(), kMostOfACell),
                                 told.at("nvml_dev").get<std::int64_t>());
      const auto& status = told.at("status");
      const auto is_true = [&](const char* key) { return status.value(key, false); };
      if (is_missing) {
        rank.is_dead = is_true("considered_dead");
        rank.is_lost = rank.is_dead || is_true("unresponsive");
        one.least = -1;
        continue;
      }
      rank.count = 0;
      for (const auto& [kind, count] : told.at("collective_counts").items()) rank.count += count.get<std::int64_t>();
      one.most = std::max(one.most, rank.count);
      one.least = std::min(one.least, rank.count);
      one.ends = one.ends || is_true("finalize_called") || is_true("destroy_flag") || is_true("abort_flag") ||
                 status.value("init_state", 0) != 0;
    }
  }
  return one;
}

/// "Rank 3 (process 4711 on 10.0.0.2, GPU 3) has", "Ranks 1, 4 have".
std::string who_has(const std::vector<const RasRank*>& ranks) {
  std::vector<int> numbers;
  for (const RasRank* one : ranks) numbers.push_back(one->rank);
  if (ranks.size() == 1) return fmt::format("Rank {} ({}) has", numbers.front(), ranks.front()->process);
  return fmt::format("Ranks {} have", fmt::join(numbers, ", "));
}

}  // namespace

std::vector<std::string> judge_ras_answer(const std::string& answer) {
  std::vector<RasCommunicator> all;
  try {
    nlohmann::json told = parse_json(answer);
    if (told.is_discarded()) told = parse_json(with_commas(answer));
    for (const auto& one : told.at("communicators")) all.push_back(read_communicator(one));
  } catch (const nlohmann::json::exception&) {
    throw ConfigError("is none of NCCL's RAS in JSON.");
  }
  std::vector<std::string> lost, behind_ones;
  std::set<std::string> waiting;  // processes that wait in some communicator
  for (const RasCommunicator& one : all) {
    for (const RasRank& rank : one.ranks) {
      if (!one.ends && rank.count == one.most && one.least < one.most) waiting.insert(rank.process);
    }
  }
  for (const RasCommunicator& one : all) {
    std::vector<const RasRank*> gone, behind;
    for (const RasRank& rank : one.ranks) {
      if (rank.is_lost) gone.push_back(&rank);
      const bool is_behind = !one.ends && rank.count >= 0 && rank.count < one.most;
      if (is_behind && !waiting.contains(rank.process)) behind.push_back(&rank);
    }
    if (!gone.empty()) {
      const bool is_dead = std::ranges::all_of(gone, &RasRank::is_dead);
      lost.push_back(fmt::format("{} fallen silent in {}: {}.", who_has(gone), one.name,
                                 is_dead ? "NCCL RAS considers it dead" : "NCCL RAS does not reach it"));
    }
    if (!behind.empty()) {
      behind_ones.push_back(fmt::format("{} not come: {} collectives of {} are handed over there, elsewhere {}.",
                                        who_has(behind), behind.front()->count, one.name, one.most));
    }
  }
  return lost.empty() ? behind_ones : lost;  // the others wait for whoever is lost
}

std::string Endpoint::name() const { return launch::endpoint(host, port); }

Endpoint read_endpoint(const std::string& option, const std::string& text, int default_port) {
  Endpoint endpoint{option, text, default_port};
  std::string port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end != std::string::npos) {
      endpoint.host = text.substr(1, end - 1);
      port = text.substr(end + 1);
    }
  } else if (const std::size_t colon = text.find(':'); colon != std::string::npos && text.rfind(':') == colon) {
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon);
  }
  bool is_port = port.empty();
  if (port.starts_with(':')) {
    const auto [end, error] = std::from_chars(port.data() + 1, port.data() + port.size(), endpoint.port);
    is_port = error == std::errc() && end == port.data() + port.size();
  }
  if (!is_port || endpoint.port < 1 || endpoint.port > 65535 || endpoint.host.empty() || endpoint.host.size() > 253 ||
      endpoint.host.find_first_of(" /[]") != std::string::npos) {
    throw ConfigError(fmt::format("{} {}: expected HOST, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535.",
                                  option, clean_text(text, kMostOfACell)));
  }
  return endpoint;
}

std::vector<std::string> ras_of_stopped_job(const Endpoint& endpoint, double patience_s) {
  const std::string source = fmt::format("NCCL's RAS ({})", endpoint.name());
  std::string answer;
  try {
    answer = ask_ras(endpoint, patience_s);
  } catch (const ConfigError& error) {
    return {fmt::format("{} was not heard: {}", source, error.what())};
  }
  try {
    std::vector<std::string> said;
    for (const std::string& sentence : judge_ras_answer(answer)) {
      if (said.size() < 8) said.push_back(fmt::format("{} says: {}", source, sentence));
    }
    if (said.empty()) {
      said.push_back(fmt::format("{} names nobody: all ranks have handed over equally many collectives.", source));
    }
    return said;
  } catch (const ConfigError& error) {
    return {fmt::format("{} gave an answer that {}", source, error.what())};
  }
}

}  // namespace fsdpbench::app
