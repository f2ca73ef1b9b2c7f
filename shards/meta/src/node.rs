//! Node ids: what Kafka's protocol calls a broker is one shard of a Corelane broker.

/// Most shards that one broker can have; node id = broker id x this + shard.
pub const SHARDS_PER_BROKER: i32 = 1000;

/// The id of one shard in the protocol and in the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub i32);

impl NodeId {
    /// The node of a broker's shard. Broker ids above 2,147,482 do not fit; the configuration
    /// refuses them, so this saturates only on a programmer's error.
    pub fn of(broker_id: i32, shard: u16) -> Self {
        debug_assert!(i32::from(shard) < SHARDS_PER_BROKER, "shard {shard}");
        NodeId(broker_id.saturating_mul(SHARDS_PER_BROKER).saturating_add(i32::from(shard)))
    }

    pub fn broker(self) -> i32 {
        self.0.div_euclid(SHARDS_PER_BROKER)
    }

    pub fn shard(self) -> u16 {
        // The remainder is below 1000, so the cast is exact.
        self.0.rem_euclid(SHARDS_PER_BROKER) as u16
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_split_into_broker_and_shard() {
        for (broker, shard, id) in [(0, 0, 0), (0, 7, 7), (1, 0, 1000), (12, 34, 12034)] {
            let node = NodeId::of(broker, shard);
            assert_eq!(node, NodeId(id));
            assert_eq!((node.broker(), node.shard()), (broker, shard));
        }
    }
}
