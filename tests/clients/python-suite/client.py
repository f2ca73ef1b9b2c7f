"""What a Python client library must offer to the scenarios: one adapter class for each library.

An adapter translates names and errors and nothing else; every check is in scenarios.py. All calls
block. Times are in milliseconds, keys and values are bytes or None.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

# After which a member of a group that says nothing is given up: the least that brokers allow.
SESSION_MS = 6_000


class TopicExists(Exception):
    pass


class UnknownTopic(Exception):
    pass


class TooLarge(Exception):
    pass


class OutOfRange(Exception):
    pass


class GroupInUse(Exception):
    pass


class Fenced(Exception):
    """Another producer has this transactional id now, or the coordinator gave this one up."""


class MustAbort(Exception):
    """The transaction cannot be committed; another one may be begun by a new producer."""


@dataclass
class Record:
    """A record to send (offset None) or one that was read."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list = field(default_factory=list)
    timestamp: int | None = None
    offset: int | None = None


def none_expected(records):
    if records:
        raise AssertionError(f"records before any was produced: {records!r:.200}")


class Producer(ABC):
    @abstractmethod
    def send(self, topic, record):
        """Hands over one record without waiting; gives a function that waits and returns the
        acknowledged offset (with acks=0: anything) or raises."""

    @abstractmethod
    def flush(self):
        pass

    @abstractmethod
    def close(self):
        pass


class Consumer(ABC):
    """Assigned by hand, never in a group."""

    @abstractmethod
    def poll(self, timeout_ms):
        """The records that came; raises OutOfRange under the "none" policy."""

    @abstractmethod
    def position(self, partition):
        """The next offset, settled with the broker if it was not."""

    @abstractmethod
    def seek(self, partition, offset):
        pass

    @abstractmethod
    def bounds(self, partition):
        """Beginning and end offset."""

    @abstractmethod
    def offset_at(self, partition, timestamp):
        """The first offset with at least this timestamp, None if there is none."""

    @abstractmethod
    def fetches(self):
        """How many fetch requests were sent so far; None if the client does not count."""

    @abstractmethod
    def close(self):
        pass


class Member(ABC):
    """A consumer of a group, which begins at "earliest" and never commits by itself. Lives in one
    thread."""

    @abstractmethod
    def poll(self, timeout_ms):
        """The records that came."""

    @abstractmethod
    def assignment(self):
        """The numbers of its partitions."""

    @abstractmethod
    def commit(self):
        """Commits what was polled. During a rebalance that is refused; it then returns False, and has
        to be called again for the partitions that stay."""

    @abstractmethod
    def close(self):
        """Leaves the group."""


class Transactor(ABC):
    """A producer with a transactional id, initialised. Every call raises Fenced or MustAbort."""

    @abstractmethod
    def begin(self):
        pass

    @abstractmethod
    def send(self, topic, record):
        """As a Producer."""

    @abstractmethod
    def flush(self):
        pass

    @abstractmethod
    def send_offsets(self, member, topic, offsets):
        """{partition: next offset} of the member's group."""

    @abstractmethod
    def commit(self):
        pass

    @abstractmethod
    def abort(self):
        pass

    @abstractmethod
    def close(self):
        pass


class Client(ABC):
    family: str
    # What the library cannot do; each entry is in the table in tests/clients/README.md.
    null_header = True
    null_key_with_null_value = True
    out_of_range_error = True
    log_dirs_described = True
    group_protocols = ("classic", "cooperative")
    groups_deleted = True

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    @abstractmethod
    def producer(self, acks="all", codec="none", idempotent=False, linger_ms=0, batch_bytes=16384):
        pass

    @abstractmethod
    def consumer(self, topic, partitions, reset="none", start=None, isolation="read_uncommitted"):
        """`reset` is "earliest", "latest" or "none"; `start` an offset for every partition, or
        None to begin where `reset` says. Fetches with max wait 500 ms and min bytes 1."""

    @abstractmethod
    def transactor(self, name, timeout_ms=60_000):
        """A producer with this transactional id."""

    @abstractmethod
    def create_topic(self, topic, partitions, configs):
        """Raises TopicExists."""

    @abstractmethod
    def delete_topic(self, topic):
        """Raises UnknownTopic."""

    @abstractmethod
    def partitions(self, topic):
        """{partition: (leader, replicas, isr)}; raises UnknownTopic, never creates the topic."""

    @abstractmethod
    def bounds(self, topic, partitions):
        """{partition: (beginning, end offset)} as the leaders say; None if one of them does not
        serve yet. Not on a consumer's connection, where it would wait behind a long poll."""

    @abstractmethod
    def topics(self):
        """The names of all topics."""

    @abstractmethod
    def cluster(self):
        """Cluster id, node ids, controller's node id."""

    @abstractmethod
    def config(self, topic, key):
        """The value, and whether it is set on the topic itself."""

    @abstractmethod
    def set_config(self, topic, key, value):
        """Sets it on the topic; None takes it away."""

    @abstractmethod
    def create_partitions(self, topic, total):
        pass

    @abstractmethod
    def delete_records(self, topic, partition, before):
        """Gives the new low watermark."""

    @abstractmethod
    def member(self, topic, group, protocol, instance=None):
        """`protocol` is one of `group_protocols`: "classic" (eager, range), "cooperative" or
        "consumer" (KIP-848). A static member, if `instance` is given."""

    @abstractmethod
    def committed(self, group, topic):
        """{partition: offset} of what is committed."""

    @abstractmethod
    def groups(self):
        """The names of all groups."""

    @abstractmethod
    def describe_group(self, group):
        """State ("Stable", "Empty" and so on) and number of members."""

    def delete_group(self, group):
        """Raises GroupInUse."""
        raise NotImplementedError

    def log_dirs(self):
        """{(topic, partition): bytes} over all brokers."""
        raise NotImplementedError

    @abstractmethod
    def close(self):
        pass
