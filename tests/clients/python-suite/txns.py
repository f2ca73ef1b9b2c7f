"""The scenarios of transactions in tests/clients/README.md for the Python libraries."""

import queue
import random
import secrets
import subprocess
import sys
import threading
import time

from client import Fenced, MustAbort, Record
from scenarios import PATIENCE_S, Kit, equal, key, that, value, wait_for

PARTITIONS = 4
PIPELINE_PARTITIONS = 2
# Records in one transaction of a pipeline.
CHUNK = 10
# Of a pipeline's process: how often it is killed, and after at most how many rounds and how long.
KILLS = 6
BROKER_KILLED_IN = 2
KILLED_WITHIN_ROUNDS = 12
KILLED_WITHIN_S = 0.03
STARTED_WITHIN_S = 1
# Enough for all the rounds that one who is killed may be waited for, however fast it is.
RECORDS_PER_LIFE = 300
# The broker may have to start meanwhile.
SAYS_WITHIN_S = 60
# As a static member, who comes again finds its partitions without waiting for the end of the session
# of the one who was killed.
INSTANCE = "worker"


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


def until_it_works(what, make):
    def attempt():
        try:
            return make()
        except Exception as error:
            print(f"{what}: {error!r}", file=sys.stderr)
            return None

    return wait_for(what, attempt)


class Pipeline:
    """Reads a topic and writes each record to another, in transactions with the offsets of what was
    read."""

    def __init__(self, kit, source, sink, count, instance=None):
        self.kit = kit
        self.source = source
        self.sink = sink
        self.count = count
        self.instance = instance
        self.rounds = 0
        self.aborted = 0
        self.done = 0

    @classmethod
    def filled(cls, kit, count):
        source, sink = (kit.new_topic(PIPELINE_PARTITIONS) for _ in range(2))
        kit.send(source, [Record(i % PIPELINE_PARTITIONS, key(i), value(i)) for i in range(count)])
        return cls(kit, source, sink, count)

    def committed(self):
        # The coordinator may be loading, or its broker be away.
        found = until_it_works(
            "committed offsets", lambda: self.kit.client.committed(self.source, self.source)
        )
        return sum(max(offset, 0) for offset in found.values())

    def run(self, until, before_end):
        """Until so many are committed. `before_end(round)` says whether to abort the round."""
        deadline = time.monotonic() + 90
        while self.done < until:
            that("the pipeline ends", time.monotonic() < deadline)
            # A new producer waits for the end of what the one before it left, so that a new member
            # finds all that was committed.
            producer = until_it_works("a producer", lambda: transactor(self.kit, self.sink))
            member = until_it_works("a member", self.member)
            try:
                self.turn(producer, member, until, before_end, deadline)
            except MustAbort as error:
                print(f"begins again for {error!r}", file=sys.stderr)
            finally:
                member.close()

    def member(self):
        return self.kit.client.member(self.source, self.source, "classic", self.instance)

    def turn(self, producer, member, until, before_end, deadline):
        known = False
        while not (known and self.done >= until) and time.monotonic() < deadline:
            records = member.poll(200)
            if not known and member.assignment():
                known, self.done = True, self.committed()
            # What is polled beyond the end is left to who comes next.
            while records and self.done < until:
                chunk, records = records[:CHUNK], records[CHUNK:]
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
    pipeline = Pipeline.filled(kit, 600)
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
    pipeline = Pipeline.filled(kit, 600)

    def before_end(number):
        # Here the transaction has its records and offsets.
        if number == 30:
            print("kill broker", flush=True)
        return number % 5 == 4

    pipeline.run(600, before_end)
    pipeline.check()


class PipelineProcess:
    """A pipeline as a process of its own, see `serve`, which says each round until so many are
    committed."""

    def __init__(self, kit, pipeline, until):
        command = [sys.executable, sys.argv[0], "--bootstrap", kit.client.bootstrap]
        command += ["--pipeline", pipeline.source, pipeline.sink, str(until)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        kit.open.callback(self.kill)
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def says(self):
        try:
            return self.lines.get(timeout=SAYS_WITHIN_S)
        except queue.Empty:
            raise AssertionError("the pipeline's process says nothing") from None

    def go_on(self, rounds):
        for _ in range(rounds):
            if self.says() is None:
                ended = self.process.wait(PATIENCE_S)
                raise AssertionError(f"the pipeline's process ended with {ended}")

    def finish(self):
        self.process.stdin.close()
        while self.says() is not None:
            pass
        equal("exit code of the pipeline's process", 0, self.process.wait(PATIENCE_S))

    def kill(self):
        self.process.kill()
        self.process.wait()


def serve(connect, source, sink, until):
    """The life of one that is to be killed. The broker may be away when it begins. At its end it
    waits for that of its input, so that one that is to be killed is there to be."""
    client = until_it_works("a client", connect)
    pipeline = Pipeline(Kit(client, "pipeline"), source, sink, int(until), INSTANCE)

    def before_end(number):
        print("round", number, flush=True)
        return number % 5 == 4

    with pipeline.kit.open:
        pipeline.run(pipeline.count, before_end)
        sys.stdin.read()


def client_kill(kit):
    pipeline = Pipeline.filled(kit, (KILLS + 1) * RECORDS_PER_LIFE)
    seed = secrets.randbits(32)
    print(f"kills by seed {seed}", file=sys.stderr)
    chance = random.Random(seed)
    # The broker is killed while the process lives, or together with it.
    alone = chance.random() < 0.5
    for life in range(KILLS):
        process = PipelineProcess(kit, pipeline, (life + 1) * RECORDS_PER_LIFE)
        rounds = chance.randint(0, KILLED_WITHIN_ROUNDS)
        if life == BROKER_KILLED_IN and alone:
            process.go_on(chance.randint(1, KILLED_WITHIN_ROUNDS))
            print("kill broker", flush=True)
        process.go_on(rounds)
        # The moment that the kill comes at is what is tried here; nothing waits for it.
        time.sleep(chance.uniform(0, KILLED_WITHIN_S if rounds else STARTED_WITHIN_S))
        if life == BROKER_KILLED_IN and not alone:
            print("kill broker", flush=True)
        process.kill()
    PipelineProcess(kit, pipeline, pipeline.count).finish()
    pipeline.check()


SCENARIOS = {
    "txn-commit-abort": commit_abort,
    "txn-fencing": fencing,
    "txn-consume-transform": consume_transform,
    "txn-timeout": timeout,
    "txn-broker-kill": broker_kill,
    "txn-client-kill": client_kill,
}
