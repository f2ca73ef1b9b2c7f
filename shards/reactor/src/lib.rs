//! The facade to the machine: executor, tasks, timers, files, sockets and cross-shard channels.
