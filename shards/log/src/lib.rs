//! One partition's log: segments, indexes, appender, cache, recovery, retention.
