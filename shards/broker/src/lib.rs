//! One shard: listener, connections, one file per API, wiring of the rooms below.
