"""The scenarios of transactions in tests/clients/README.md for the Python libraries."""

import secrets
import sys
import time

from client import Fenced, MustAbort, Record
from scenarios import PATIENCE_S, equal, key, that, value, wait_for

PARTITIONS = 4
PIPELINE_PARTITIONS = 2
# Records in one transaction of a pipeline.
CHUNK = 10


def transactor(kit, name, **settings):
    made = kit.client.transactor(name, **settings)
    kit.open.callback(made.close)
    return made


def send(transactor, topic, first, end):
    """Evenly over the partitions, acknowledged."""
    waits = [
        transactor.send(topic, Record(i % PARTITIONS, key(i), value(i))) for i in range(first, end)
    ]
    transactor.flush()
    for wait in waits:
        wait()


def values(*ranges):
    return [value(i) for first, end in ranges for i in range(first, end)]


def seen(kit, topic, partitions, isolation):
    """The values in front of records that are written now, without a transaction: whoever comes to
    them has seen all that is decided."""
    mark = b"mark-" + secrets.token_hex(4).encode()
    kit.send(topic, [Record(partition, None, mark) for partition in range(partitions)])
    consumer = kit.consumer(topic, range(partitions), reset="earliest", isolation=isolation)
    found, marks = [], 0
    deadline = time.monotonic() + PATIENCE_S
    while marks < partitions and time.monotonic() < deadline:
        for record in consumer.poll(200):
            marks += record.value == mark
            if not record.value.startswith(b"mark-"):
                found.append(record.value)
    equal(f"marks seen {isolation}", partitions, marks)
    return sorted(found)


def check(kit, topic, committed, everything, partitions=PARTITIONS):
    same("committed", sorted(committed), seen(kit, topic, partitions, "read_committed"))
    same("all", sorted(everything), seen(kit, topic, partitions, "read_uncommitted"))


def same(what, expected, actual):
    if expected != actual:
        missing, more = list(expected), list(actual)
        for one in actual:
            if one in missing:
                missing.remove(one)
        for one in expected:
            if one in more:
                more.remove(one)
        raise AssertionError(f"{what}: missing {missing!r:.300}, too much {more!r:.300}")


def open_hides(kit, topic, hidden):
    """All can be read, and nobody who wants what is committed gets it."""
    uncommitted = seen(kit, topic, PARTITIONS, "read_uncommitted")
    equal("not seen", set(), set(hidden) - set(uncommitted))
    consumer = kit.consumer(topic, range(PARTITIONS), reset="earliest", isolation="read_committed")
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        came = [record.value for record in consumer.poll(200)]
        equal("seen of an open transaction", set(), set(came) & set(hidden))


def commit_abort(kit):
    topic = kit.new_topic(PARTITIONS)
    producer = transactor(kit, topic)
    producer.begin()
    send(producer, topic, 0, 100)
    open_hides(kit, topic, values((0, 100)))
    producer.commit()
    check(kit, topic, values((0, 100)), values((0, 100)))
    producer.begin()
    send(producer, topic, 100, 200)
    producer.abort()
    check(kit, topic, values((0, 100)), values((0, 200)))
    committed = values((0, 100))
    for number in range(20):
        first = 200 + 8 * number
        producer.begin()
        send(producer, topic, first, first + 8)
        if number % 3 == 2:
            producer.abort()
        else:
            producer.commit()
            committed += values((first, first + 8))
    check(kit, topic, committed, values((0, 360)))
    # Another's open transaction holds back what is committed behind it.
    other = transactor(kit, topic + "-other")
    other.begin()
    send(other, topic, 360, 364)
    producer.begin()
    send(producer, topic, 364, 368)
    producer.commit()
    open_hides(kit, topic, values((360, 368)))
    other.abort()
    check(kit, topic, committed + values((364, 368)), values((0, 368)))


def fenced(what, call):
    try:
        call()
    except Fenced:
        return
    raise AssertionError(f"{what}: no error")


def refused(call):
    try:
        call()
    except Exception:
        return True
    return False


def fencing(kit):
    topic = kit.new_topic(PARTITIONS)
    zombie = transactor(kit, topic)
    zombie.begin()
    send(zombie, topic, 0, 40)
    zombie.commit()
    zombie.begin()
    send(zombie, topic, 40, 80)
    heir = transactor(kit, topic)
    check(kit, topic, values((0, 40)), values((0, 80)))

    def go_on():
        send(zombie, topic, 80, 120)
        zombie.commit()

    def begin_anew(producer, first):
        producer.begin()
        send(producer, topic, first, first + 40)
        producer.commit()

    fenced("the zombie's transaction goes on", go_on)
    heir.begin()
    send(heir, topic, 120, 160)
    # Some libraries say here only that they are in no state for this.
    that("the zombie's new transaction fails", refused(lambda: begin_anew(zombie, 160)))
    heir.commit()
    same("committed", values((0, 40), (120, 160)), seen(kit, topic, PARTITIONS, "read_committed"))
    third = transactor(kit, topic)
    fenced("the next transaction", lambda: begin_anew(heir, 200))
    begin_anew(third, 240)
    expected = values((0, 40), (120, 160), (240, 280))
    same("committed", expected, seen(kit, topic, PARTITIONS, "read_committed"))


class Pipeline:
    """Reads a topic and writes each record to another, in transactions with the offsets of what was
    read."""

    def __init__(self, kit, count):
        self.kit = kit
        self.count = count
        self.source = kit.new_topic(PIPELINE_PARTITIONS)
        self.sink = kit.new_topic(PIPELINE_PARTITIONS)
        kit.send(self.source, [Record(i % PIPELINE_PARTITIONS, key(i), value(i)) for i in range(count)])
        self.rounds = 0
        self.aborted = 0
        self.done = 0

    def committed(self):
        # The coordinator may be loading, or its broker be away.
        found = self.retried(
            "committed offsets", lambda: self.kit.client.committed(self.source, self.source)
        )
        return sum(max(offset, 0) for offset in found.values())

    def run(self, until, before_end):
        """Until so many are committed. `before_end(round)` says whether to abort the round."""
        deadline = time.monotonic() + 50
        while self.done < until:
            that("the pipeline ends", time.monotonic() < deadline)
            # A new producer waits for the end of what the one before it left, so that a new member
            # finds all that was committed.
            producer = self.retried("a producer", lambda: transactor(self.kit, self.sink))
            member = self.retried(
                "a member", lambda: self.kit.client.member(self.source, self.source, "classic")
            )
            try:
                self.turn(producer, member, until, before_end, deadline)
            except MustAbort as error:
                print(f"begins again for {error!r}", file=sys.stderr)
            finally:
                member.close()

    def retried(self, what, make):
        def attempt():
            try:
                return make()
            except Exception as error:
                print(f"{what}: {error!r}", file=sys.stderr)
                return None

        return wait_for(what, attempt)

    def turn(self, producer, member, until, before_end, deadline):
        known = False
        while not (known and self.done >= until) and time.monotonic() < deadline:
            records = member.poll(200)
            if not known and member.assignment():
                known, self.done = True, self.committed()
            for first in range(0, len(records), CHUNK):
                chunk = records[first : first + CHUNK]
                while self.transaction(producer, member, chunk, before_end):
                    self.aborted += 1
                self.done += len(chunk)

    def transaction(self, producer, member, chunk, before_end):
        """Whether it was aborted on purpose."""
        producer.begin()
        waits = [producer.send(self.sink, Record(r.partition, r.key, r.value)) for r in chunk]
        producer.flush()
        for wait in waits:
            wait()
        producer.send_offsets(member, self.source, {r.partition: r.offset + 1 for r in chunk})
        self.rounds += 1
        if before_end(self.rounds):
            producer.abort()
            return True
        producer.commit()
        return False

    def check(self):
        expected = values((0, self.count))
        same("output", expected, seen(self.kit, self.sink, PIPELINE_PARTITIONS, "read_committed"))
        equal("committed", self.count, self.committed())


def consume_transform(kit):
    pipeline = Pipeline(kit, 600)
    # The second life goes on where the first ended.
    for until in (300, 600):
        pipeline.run(until, lambda number: number % 3 == 1)
    pipeline.check()
    that(f"{pipeline.aborted} rounds were aborted", pipeline.aborted >= 10)
    written = len(seen(kit, pipeline.sink, PIPELINE_PARTITIONS, "read_uncommitted"))
    that(f"aborted records are in the log: {written}", written > 600)


def timeout(kit):
    topic = kit.new_topic(PARTITIONS)
    silent = transactor(kit, topic, timeout_ms=3_000)
    silent.begin()
    send(silent, topic, 0, 40)
    # The marks in it are read only when the coordinator has aborted what is in front of them.
    check(kit, topic, [], values((0, 40)))
    fenced("a commit of what was aborted", silent.commit)
    again = transactor(kit, topic)
    again.begin()
    send(again, topic, 40, 80)
    again.commit()
    check(kit, topic, values((40, 80)), values((0, 80)))


def broker_kill(kit):
    pipeline = Pipeline(kit, 600)

    def before_end(number):
        # Here the transaction has its records and offsets.
        if number == 30:
            print("kill broker", flush=True)
        return number % 5 == 4

    pipeline.run(600, before_end)
    pipeline.check()


SCENARIOS = {
    "txn-commit-abort": commit_abort,
    "txn-fencing": fencing,
    "txn-consume-transform": consume_transform,
    "txn-timeout": timeout,
    "txn-broker-kill": broker_kill,
}
