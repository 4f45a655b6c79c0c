#include "app/commands/ask_endpoint.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/read_input.h"
#include "foreign/watch/judge.h"
#include "foreign/watch/sources.h"
#include "launch/addresses.h"
#include "launch/socket.h"
#include "record/json_part.h"

namespace fsdpbench::app {
namespace {

constexpr std::size_t kMostOfAStatus = 256;

/// One connection, of which everything together has so much time.
class Conversation {
 public:
  Conversation(const Endpoint& endpoint, double patience_s)
      : endpoint_(endpoint), patience_s_(patience_s), deadline_(launch::deadline_in(patience_s)) {
    std::string error;
    socket_ = launch::connect_to(endpoint.host, endpoint.port, deadline_, error);
    if (!socket_) fail(fmt::format("nobody answers there: {}.", error));
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw ConfigError(fmt::format("{} {}: {}", endpoint_.option, endpoint_.name(), why));
  }

  void say(std::string_view text) {
    while (!text.empty()) {
      const auto moved = socket_.send(text.data(), text.size());
      if (moved.closed) fail("the connection was closed.");
      text.remove_prefix(moved.bytes);
      if (moved.bytes == 0) wait(POLLOUT);
    }
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
    }
    return std::move(heard_);
  }

 private:
  static constexpr std::size_t kMostOfALine = 4096;

  /// False once the other side has closed.
  bool hear() {
    std::array<char, 65536> piece{};
    for (;;) {
      if (std::chrono::steady_clock::now() >= deadline_) fail(late());
      const auto moved = socket_.receive(piece.data(), piece.size());
      if (moved.bytes > 0) {
        heard_.append(piece.data(), moved.bytes);
        return true;
      }
      if (moved.closed && !moved.error.empty()) fail(fmt::format("the connection broke: {}.", moved.error));
      if (moved.closed) return false;
      wait(POLLIN);
    }
  }

  void wait(short what) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    pollfd wanted{socket_.fd(), what, 0};
    if (left.count() <= 0 || ::poll(&wanted, 1, static_cast<int>(left.count()) + 1) == 0) fail(late());
  }
  std::string late() const { return fmt::format("there was no whole answer within {:.0f} s.", patience_s_); }

  Endpoint endpoint_;
  double patience_s_;
  launch::Deadline deadline_;
  launch::Socket socket_;
  std::string heard_;
};

}  // namespace

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

std::string ask_ras(const Endpoint& endpoint, double patience_s) {
  Conversation ras(endpoint, patience_s);
  ras.say("CLIENT PROTOCOL 2\n");
  if (const std::string said = ras.line(); !said.starts_with("SERVER PROTOCOL ")) {
    ras.fail(fmt::format("what answers there is not NCCL's RAS: it says '{}'.", clean_text(said, kMostOfACell)));
  }
  constexpr double kMostOfRas_s = 5;  // in which its processes answer each other
  const std::string timeout = fmt::format("TIMEOUT {:.0f}\n", std::clamp(patience_s / 2, 1.0, kMostOfRas_s));
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

std::string ask_metrics(const Endpoint& endpoint, double patience_s) {
  Conversation exporter(endpoint, patience_s);
  exporter.say(fmt::format("GET /metrics HTTP/1.0\r\nHost: {}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n",
                           endpoint.name()));
  std::string answer = exporter.rest();
  std::size_t end = answer.find("\r\n\r\n");
  const std::string status = answer.substr(0, std::min(answer.find_first_of("\r\n"), kMostOfAStatus));
  if (!status.starts_with("HTTP/1.") || end == std::string::npos) {
    exporter.fail(
        fmt::format("what answers there does not speak HTTP: it says '{}'.", clean_text(status, kMostOfACell)));
  }
  if (status.find(" 200") == std::string::npos) {
    exporter.fail(fmt::format("GET /metrics is answered with '{}'.", clean_text(status, kMostOfACell)));
  }
  std::string head = answer.substr(0, end);
  std::ranges::transform(head, head.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  answer.erase(0, end + 4);
  if (head.find("\r\ntransfer-encoding:") != std::string::npos ||
      head.find("\r\ncontent-encoding:") != std::string::npos) {
    exporter.fail("the answer is encoded, which was not asked for.");
  }
  constexpr std::string_view kLength = "\r\ncontent-length:";
  if (const std::size_t at = head.find(kLength); at != std::string::npos) {
    const auto length = std::strtoull(head.c_str() + at + kLength.size(), nullptr, 10);
    if (length != answer.size()) exporter.fail("the connection was closed before the whole answer had come.");
  }
  return answer;
}

std::vector<MetricsAnswer> ask_metrics(const std::vector<Endpoint>& endpoints, double patience_s) {
  constexpr std::size_t kAtOnce = 32;
  std::vector<MetricsAnswer> answers(endpoints.size());
  std::atomic<std::size_t> next = 0;
  const auto ask = [&] {
    for (std::size_t i = next++; i < endpoints.size(); i = next++) {
      try {
        answers[i].text = ask_metrics(endpoints[i], patience_s);
      } catch (const ConfigError& error) {
        answers[i].why = error.what();
      }
    }
  };
  std::vector<std::jthread> askers;
  for (std::size_t i = 1; i < std::min(endpoints.size(), kAtOnce); ++i) askers.emplace_back(ask);
  ask();
  askers.clear();  // joins them
  return answers;
}

std::vector<std::string> ras_of_stopped_job(const Endpoint& endpoint, double patience_s) {
  constexpr std::size_t kMostSentences = 8;
  const std::string source = fmt::format("NCCL's RAS ({})", endpoint.name());
  try {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    watch::JobView job;
    const std::string why = watch::Sources({}, parse_json)
                                .add_ras(job, ask_ras(endpoint, patience_s),
                                         std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    if (!why.empty()) return {fmt::format("{} gave an answer that {}", source, why)};
    const watch::Judgement judged = judge(job, job.newest_ns(), {.stopped = true});
    std::vector<std::string> said;
    for (const watch::Accusation& one : judged.all) {
      if (said.size() < kMostSentences) said.push_back(fmt::format("{} says: {}", source, one.sentence));
    }
    if (said.empty()) said.push_back(fmt::format("{} names nobody: {}", source, judged.sentence));
    return said;
  } catch (const ConfigError& error) {
    return {fmt::format("{} was not heard: {}", source, error.what())};
  }
}

}  // namespace fsdpbench::app
