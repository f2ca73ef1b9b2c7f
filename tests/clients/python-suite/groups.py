"""The scenarios of consumer groups in tests/clients/README.md for the Python libraries.

Each member lives in a thread of its own, as it would in a program; the scenario looks at what the
members say of themselves and never calls them. Those that are to die are processes.
"""

import contextlib
import subprocess
import sys
import threading
import time

from client import GroupInUse, Record
from scenarios import equal, key, that, value, wait_for

PARTITIONS = 4
ROLLING_PARTITIONS = 8
# Of the records that are written while members come and go.
BATCH = 2 * ROLLING_PARTITIONS
WRITE_EVERY_S = 0.05


class Worker:
    """One member: polls, notes what came, commits it, until it is told to leave."""

    def __init__(self, group, member):
        self.group = group
        self.partitions = frozenset()
        self.failure = None
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(member,), daemon=True)
        self.thread.start()

    def run(self, member):
        uncommitted = False
        try:
            while not self.stop.is_set():
                records = member.poll(100)
                self.group.note(records)
                uncommitted = (uncommitted or bool(records)) and not member.commit()
                self.partitions = frozenset(member.assignment())
        except BaseException as error:
            self.failure = error
        finally:
            self.partitions = frozenset()
            member.close()

    def leave(self):
        self.stop.set()
        self.thread.join(30)
        that("the member has left", not self.thread.is_alive())
        if self.failure:
            raise self.failure


class Process:
    """The same as a process of its own, see `serve`. It leaves only by being killed."""

    def __init__(self, group, protocol):
        self.group = group
        self.partitions = frozenset()
        self.failure = None
        self.killed = False
        command = [sys.executable, sys.argv[0], "--bootstrap", group.kit.client.bootstrap]
        command += ["--member", group.topic, group.id, protocol]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        for line in self.process.stdout:
            # What it was about to say when it was killed is no line.
            if not line.endswith("\n"):
                break
            kind, *words = line.split()
            if kind == "has":
                self.partitions = frozenset(map(int, words))
            else:
                partition, offset, text = words
                self.group.note([Record(int(partition), None, text.encode(), offset=int(offset))])
        self.partitions = frozenset()
        if not self.killed:
            self.failure = AssertionError("a member's process has ended")

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()
        self.thread.join()


def serve(client, topic, group, protocol):
    """A member that says on stdout what it reads, before it commits that, and what it has."""
    member = client.member(topic, group, protocol)
    uncommitted = False
    while True:
        records = member.poll(100)
        for record in records:
            print("read", record.partition, record.offset, record.value.decode())
        sys.stdout.flush()
        uncommitted = (uncommitted or bool(records)) and not member.commit()
        print("has", *member.assignment(), flush=True)


class Group:
    """A group with its topic, its members, and what they have read."""

    def __init__(self, kit, partitions=PARTITIONS):
        self.kit = kit
        self.id = kit.fresh_name()
        self.topic = kit.new_topic(partitions)
        self.partitions = partitions
        self.workers = []
        self.lock = threading.Lock()
        self.seen = {partition: set() for partition in range(partitions)}
        self.wrong = None
        self.produced = 0
        # What was committed at the last look, if anybody looks.
        self.last = None

    def note(self, records):
        with self.lock:
            for record in records:
                expected = value(record.offset * self.partitions + record.partition)
                if record.value != expected:
                    self.wrong = f"{record.partition}:{record.offset} holds {record.value!r}"
                self.seen[record.partition].add(record.offset)

    def join(self, protocol):
        worker = Worker(self, self.kit.client.member(self.topic, self.id, protocol))
        self.workers.append(worker)
        # A scenario that fails must not leave it behind.
        self.kit.open.callback(worker.stop.set)
        return worker

    def leave(self, worker):
        self.workers.remove(worker)
        worker.leave()

    def spawn(self, protocol):
        process = Process(self, protocol)
        self.workers.append(process)
        self.kit.open.callback(process.kill)
        return process

    def kill(self, process):
        self.workers.remove(process)
        process.kill()

    def produce(self, count):
        self.kit.send(self.topic, self.next(count))
        self.produced += count

    def next(self, count):
        indexes = range(self.produced, self.produced + count)
        return [Record(i % self.partitions, key(i), value(i)) for i in indexes]

    @contextlib.contextmanager
    def writing(self):
        """Writes all the time, in a thread of its own."""
        over = threading.Event()
        producer = self.kit.producer()

        def write():
            try:
                while not over.wait(WRITE_EVERY_S):
                    waits = [producer.send(self.topic, record) for record in self.next(BATCH)]
                    producer.flush()
                    for wait in waits:
                        wait()
                    self.produced += BATCH
            except BaseException as error:
                self.wrong = f"the producer: {error!r}"

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(30)
        that("the producer has ended", not thread.is_alive())

    def watch(self):
        """Nothing that is committed goes back."""
        now = self.committed()
        for partition, offset in self.last.items():
            that(
                f"committed of {partition} went from {offset} to {now.get(partition)}",
                now.get(partition, -1) >= offset,
            )
        self.last = now

    def wait_for(self, what, ask):
        def checked():
            if self.last is not None:
                self.watch()
            for worker in self.workers:
                if worker.failure:
                    raise worker.failure
            if self.wrong:
                raise AssertionError(self.wrong)
            return True if ask() else None

        wait_for(what, checked)

    def settle(self, *shares):
        def ask():
            owned = [worker.partitions for worker in self.workers]
            all_owned = [partition for partitions in owned for partition in partitions]
            counts = sorted(map(len, owned))
            return counts == sorted(shares) and len(set(all_owned)) == self.partitions

        self.wait_for(f"shares {shares}", ask)

    def read_all(self):
        each = self.produced // self.partitions
        everything = {partition: set(range(each)) for partition in range(self.partitions)}
        self.wait_for("all records", lambda: self.seen == everything)
        committed = dict.fromkeys(range(self.partitions), each)
        self.wait_for("all commits", lambda: self.committed() == committed)

    def committed(self):
        return self.kit.client.committed(self.id, self.topic)


def life(protocol):
    def scenario(kit):
        group = Group(kit)
        group.produce(200)
        first = group.join(protocol)
        group.settle(4)
        group.read_all()

        second = group.join(protocol)
        group.settle(2, 2)
        group.produce(200)
        group.read_all()

        third = group.join(protocol)
        group.settle(1, 1, 2)
        group.produce(200)
        group.leave(second)
        group.settle(2, 2)
        group.read_all()

        group.leave(first)
        group.leave(third)
        group.seen = {partition: set() for partition in range(PARTITIONS)}
        group.produce(40)
        last = group.join(protocol)
        group.wait_for("new records", lambda: sum(map(len, group.seen.values())) >= 40)
        for partition, offsets in group.seen.items():
            equal(f"what a new member gets of {partition}", list(range(150, 160)), sorted(offsets))
        group.leave(last)

    return scenario


def rolling(protocol):
    """Members come, go and die, several at a time, while records are written all along."""

    def scenario(kit):
        group = Group(kit, ROLLING_PARTITIONS)
        with group.writing():
            a, b, c = group.join(protocol), group.spawn(protocol), group.join(protocol)
            group.settle(2, 3, 3)
            # Not sooner: librdkafka 2.16 crashes if it is asked before there is a coordinator.
            group.last = {}
            d, e = group.join(protocol), group.spawn(protocol)
            group.settle(1, 1, 2, 2, 2)
            group.kill(b)
            group.leave(a)
            group.settle(2, 3, 3)
            # In the middle of the rebalance that the newcomer brings about.
            f = group.join(protocol)
            group.kill(e)
            group.settle(2, 3, 3)
            group.leave(c)
            g, h = group.join(protocol), group.join(protocol)
            group.settle(2, 2, 2, 2)
        group.read_all()
        for worker in (d, f, g, h):
            group.leave(worker)

    return scenario


def admin(kit):
    client = kit.client
    for protocol in client.group_protocols:
        group = Group(kit)
        group.produce(40)
        member = group.join(protocol)
        group.settle(4)
        group.read_all()
        that("listed", group.id in client.groups())
        equal("state and members", ("Stable", 1), client.describe_group(group.id))
        if client.groups_deleted:
            refused = False
            try:
                client.delete_group(group.id)
            except GroupInUse:
                refused = True
            that("deleting a group in use is refused", refused)
        group.leave(member)
        equal("state and members", ("Empty", 0), client.describe_group(group.id))
        if client.groups_deleted:
            client.delete_group(group.id)
            that("not listed", group.id not in client.groups())
            equal("committed", {}, group.committed())


SCENARIOS = {
    "group-classic": life("classic"),
    "group-cooperative": life("cooperative"),
    "group-consumer": life("consumer"),
    "group-rolling": rolling("classic"),
    "group-rolling-cooperative": rolling("cooperative"),
    "group-rolling-consumer": rolling("consumer"),
    "group-admin": admin,
}
