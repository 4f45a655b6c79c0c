#!/usr/bin/python3
"""Strangers on the control port of a job: they cost their own connection and nothing else.

    strangers_test.py PROGRAM SOURCE_FOLDER [unittest arguments]

tests/launch/handshake_test.cpp asks the handshake alone; here it is the program as launchers start it.
"""

import os
import re
import socket
import struct
import threading
from pathlib import Path

import harness
from harness import OK, RANK_FAILED, Faults, until
from promises import result_of, speaks_plainly

MAGIC = 0x46534442
HELLO, WELCOME, REFUSAL, MESSAGE, HEARTBEAT, FAILURE, GOODBYE = range(1, 8)
SECRET = "a secret of this test alone"
PROTOCOL = b"fsdpbench job 4\n"


def pack(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


def frame(kind: int, payload: bytes, topic: bytes = b"", announced: int | None = None) -> bytes:
    size = len(payload) if announced is None else announced
    return struct.pack("<IIQQ", MAGIC, kind, len(topic), size) + topic + payload


class Guest:
    """A client of its own, not made of the program's code: what is tested is the protocol."""

    def __init__(self, port: int) -> None:
        def knock() -> bool:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=harness.PATIENCE_S)
                return True
            except ConnectionRefusedError:
                return False

        until(knock, f"rank 0 listens at {port}")
        self.received = b""

    def greeting(self) -> None:
        """The first words of rank 0."""
        while len(self.received) < len(PROTOCOL):
            data = self.socket.recv(65536)
            if not data:
                raise EOFError(self.received)
            self.received += data
        assert self.received.startswith(PROTOCOL), self.received
        self.received = self.received[len(PROTOCOL):]

    def say(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # it has closed the door: what the caller asks for next says so

    def rest(self) -> bytes:
        """All that comes until the other side hangs up."""
        data = self.received
        try:
            while more := self.socket.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        return data

    def hello(self, secret: str, body: bytes, job: str = "") -> bytes:
        """The right answer to rank 0's greeting, for who has this secret."""
        self.greeting()
        return frame(HELLO, pack(secret.encode(), f"to join {job}".encode(), body))


def introduction(version: str = "another version", rank: int = 1, ranks: int = 2) -> bytes:
    return pack(version.encode(), str(rank).encode(), str(ranks).encode(), b"somewhere", b"1")


class Strangers(Faults):
    def setUp(self) -> None:
        super().setUp()
        self.port = harness.free_port()
        self.guests: list[Guest] = []
        self.addCleanup(lambda: [guest.socket.close() for guest in self.guests])

    def rank(self, number: int, ranks: int = 2) -> harness.Started:
        """torchrun's own port is one below rank 0's."""
        return self.bench.start(*self.run_arguments(*harness.TINY, base=[]), variables={
            **self.bench.rank_variables(number, ranks, self.port - 1), "FSDPBENCH_SECRET": SECRET})

    def guest(self) -> Guest:
        self.guests.append(Guest(self.port))
        return self.guests[-1]

    def the_job_comes_to_be(self, zero: harness.Started, ranks: int = 2) -> None:
        for rank in [zero, *(self.rank(number, ranks) for number in range(1, ranks))]:
            self.ends(rank, OK)
        self.assertTrue(result_of(self.folder / "out")["complete"])
        speaks_plainly(zero.err + zero.out)
        self.assertNotIn("somewhere", zero.err)

    def test_this_client_is_believed_if_it_has_the_secret(self) -> None:
        """Else the refusals below would show nothing."""
        zero = self.rank(0)
        guest = self.guest()
        guest.say(guest.hello(SECRET, introduction()))
        self.ends(zero, RANK_FAILED)
        self.assertIn("another version", zero.err)

    def test_whatever_they_say(self) -> None:
        zero = self.rank(0)
        wrong = self.guest()
        wrong.say(wrong.hello("the secret of somebody else", introduction()))
        self.assertIn(b"does not have this job's secret", wrong.rest())
        empty = self.guest()
        empty.greeting()
        empty.say(frame(HELLO, pack(b"", b"to join ", introduction())))
        self.assertIn(b"does not have this job's secret", empty.rest())
        for said in (b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", b"\x1b[2J" * 100, os.urandom(4000),
                     frame(MESSAGE, b'{"end": 0}', b"job.order"), frame(FAILURE, pack(b"1", b"1", b"somewhere")),
                     frame(GOODBYE, b""), frame(HELLO, b"[" * 10000), frame(HELLO, b"", announced=1 << 30),
                     frame(HELLO, b"", announced=1 << 63), PROTOCOL + b"n" * 64):
            guest = self.guest()
            guest.greeting()
            guest.say(said)
            answer = guest.rest()
            self.assertNotIn(b"somewhere", answer)
            self.assertNotIn(b"\x1b", answer)
        self.the_job_comes_to_be(zero)

    def test_with_the_secret_of_another_job(self) -> None:
        zero = self.rank(0)
        other = self.guest()
        other.say(other.hello(SECRET, introduction(), job="another job"))
        self.assertIn(b"does not have this job's secret", other.rest())
        self.the_job_comes_to_be(zero)

    def test_many_who_say_nothing(self) -> None:
        zero = self.rank(0)
        for _ in range(300):
            self.guest()
        self.the_job_comes_to_be(zero)

    def test_the_large_take_no_memory(self) -> None:
        zero = self.rank(0)
        for _ in range(20):
            guest = self.guest()
            guest.say(frame(HELLO, b"x" * 15000, announced=16 << 10))  # allowed, and never finished
        for _ in range(20):
            guest = self.guest()
            guest.say(frame(HELLO, b"x" * 100000, announced=1 << 30))
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{zero.pid}/status").read_text())
        if not harness.sanitizer():
            self.assertLess(int(peak.group(1)), 400_000)
        self.the_job_comes_to_be(zero)

    def test_those_who_come_slowly_and_never_end(self) -> None:
        zero = self.rank(0)
        guests = [self.guest() for _ in range(5)]
        stop = threading.Event()

        def dribble() -> None:
            data = frame(HELLO, b"x" * 16000)
            for i in range(len(data)):
                for guest in guests:
                    guest.say(data[i:i + 1])
                if stop.wait(0.005):
                    return

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            self.the_job_comes_to_be(zero)
        finally:
            stop.set()
            thread.join()

    def test_the_door_is_closed_while_the_job_runs(self) -> None:
        arguments = self.run_arguments(base=harness.LONG)
        ranks = [self.bench.start(*arguments, variables={**self.bench.rank_variables(rank, 2, self.port - 1),
                                                         "FSDPBENCH_SECRET": SECRET}) for rank in range(2)]
        self.training(ranks[0])
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port), timeout=5)
        ranks[1].signal(harness.signal.SIGTERM)
        for rank in ranks:
            self.ends(rank, harness.INTERRUPTED)

    def test_no_secret_is_printed_or_stored(self) -> None:
        zero = self.rank(0)
        self.the_job_comes_to_be(zero)
        for path in (self.folder / "out").rglob("*"):
            if path.is_file():
                self.assertNotIn(SECRET.encode(), path.read_bytes(), path)
        self.assertNotIn(SECRET, zero.out + zero.err)

    def test_ranks_of_one_host_need_no_network_but_loopback(self) -> None:
        if harness.subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("a network of its own needs root")
        variables = [self.bench.rank_variables(rank, 2, self.port - 1) for rank in range(2)]
        script = self.bench.write("both.sh", "#!/bin/sh\nip link set lo up || exit 77\n" + "".join(
            "env " + " ".join(f"{name}={value}" for name, value in v.items()) + f' "$@" {"&" if v["RANK"] else ""}\n'
            for v in reversed(variables)))
        script.chmod(0o700)
        done = self.bench.start("-n", str(script), harness.PROGRAM, *self.run_arguments(*harness.TINY, base=[]),
                                program="unshare")
        self.ends(done, OK, 77)
        if done.popen.returncode == 77:
            self.skipTest("there is no `ip` to start loopback with")
        self.assertTrue(result_of(self.folder / "out")["complete"])


if __name__ == "__main__":
    harness.main()
