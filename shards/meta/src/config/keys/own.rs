//! Broker keys that only Corelane has.

use super::super::key::{Kind, Section, cluster_wide, read_only};

pub(super) const OWN: Section = Section {
    title: "Corelane's own keys",
    keys: &[
        read_only("shards", Kind::Int)
            .default("0")
            .between(0, 1000)
            .doc("Shards of this process, one thread each; 0: one for each usable core.")
            .honoured(),
        read_only("memory.bytes", Kind::Long)
            .default("0")
            .at_least(0)
            .doc("Memory of the whole process, shared out evenly; 0: 512 MiB for each shard, at most half of the machine's.")
            .honoured(),
        read_only("admin.host", Kind::String)
            .default("127.0.0.1")
            .doc("Where metrics and health are served over HTTP: an address of this machine.")
            .honoured(),
        read_only("admin.port", Kind::Int)
            .default("-1")
            .between(-1, 65535)
            .doc("Port of metrics and health; -1: 1000 above the first shard's, if it is free; 0: none.")
            .honoured(),
        cluster_wide("log.write.caching", Kind::Bool)
            .default("false")
            .doc("Default of write.caching.")
            .honoured(),
        cluster_wide("record.validation", Kind::String)
            .default("relaxed")
            .one_of(&["relaxed", "strict"])
            .doc("Default of the topic key of the same name.")
            .honoured(),
    ],
};
