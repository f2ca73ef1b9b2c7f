"""The scenarios of consumer groups in tests/clients/README.md for the Python libraries.

Each member lives in a thread of its own, as it would in a program; the scenario looks at what the
members say of themselves and never calls them.
"""

import threading

from client import GroupInUse, Record
from scenarios import equal, key, that, value, wait_for

PARTITIONS = 4


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
        try:
            while not self.stop.is_set():
                records = member.poll(100)
                if records:
                    self.group.note(records)
                    member.commit()
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


class Group:
    """A group with its topic, its members, and what they have read."""

    def __init__(self, kit):
        self.kit = kit
        self.id = kit.fresh_name()
        self.topic = kit.new_topic(PARTITIONS)
        self.workers = []
        self.lock = threading.Lock()
        self.seen = {partition: set() for partition in range(PARTITIONS)}
        self.wrong = None
        self.produced = 0

    def note(self, records):
        with self.lock:
            for record in records:
                expected = value(record.offset * PARTITIONS + record.partition)
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

    def produce(self, count):
        indexes = range(self.produced, self.produced + count)
        self.kit.send(self.topic, [Record(i % PARTITIONS, key(i), value(i)) for i in indexes])
        self.produced += count

    def wait_for(self, what, ask):
        def checked():
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
            return sorted(map(len, owned)) == sorted(shares) and len(set(all_owned)) == PARTITIONS

        self.wait_for(f"shares {shares}", ask)

    def read_all(self):
        each = self.produced // PARTITIONS
        everything = {partition: set(range(each)) for partition in range(PARTITIONS)}
        self.wait_for("all records", lambda: self.seen == everything)
        committed = dict.fromkeys(range(PARTITIONS), each)
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
    "group-admin": admin,
}
