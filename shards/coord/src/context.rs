//! What a request comes with, and what the coordinator may ask about topics.

use wire::Uuid;

/// The caller's handle for an answer: unique among requests that have not been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What a coordinator needs to know beside the request itself.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The clock of deadlines, milliseconds: runs evenly, whatever becomes of the wall clock.
    pub now_ms: i64,
    /// Wall clock, milliseconds since 1970: for what is written down and compared after a restart.
    pub wall_ms: i64,
    /// Names the answer, which may come with a later decision.
    pub token: Token,
    /// Version of the request.
    pub version: i16,
    pub client_id: &'a str,
    /// The peer's address as Kafka writes it: `/127.0.0.1`.
    pub client_host: &'a str,
    /// Random bytes for the id of a new member; never the same twice.
    pub fresh_id: Uuid,
    pub topics: &'a dyn Topics,
}

/// One topic of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicInfo {
    pub id: Uuid,
    pub partitions: i32,
    /// Racks of each partition's replicas; empty where none is known.
    pub racks: Vec<Vec<String>>,
}

/// The cluster's topics as this node knows them.
pub trait Topics {
    fn by_name(&self, name: &str) -> Option<TopicInfo>;
    fn name_of(&self, id: Uuid) -> Option<String>;
    fn id_of(&self, name: &str) -> Option<Uuid>;
    /// Calls back with each topic's name: for subscriptions by regular expression.
    fn each_name(&self, call: &mut dyn FnMut(&str));
    /// Grows with every change of topics; a regular expression resolved at one version is still
    /// right while the version stands.
    fn version(&self) -> i64;
}

/// A random UUID in its hexadecimal form, as Kafka names classic members.
pub(crate) fn hyphenated(id: Uuid) -> String {
    let id = Uuid::from_random(id.0);
    let mut text = String::with_capacity(36);
    for (at, byte) in id.0.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_ids_are_random_uuids() {
        let id = Uuid([0xab; 16]);
        assert_eq!(hyphenated(id), "abababab-abab-4bab-abab-abababababab");
    }
}
