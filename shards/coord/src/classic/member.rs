//! One member of a classic group.

use crate::Name;
use crate::context::Token;

/// Protocols in the member's order of preference, each with what the member says in it.
pub(crate) type Protocols = Vec<(Name, Box<[u8]>)>;

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub id: Name,
    /// Set for static members.
    pub instance: Option<Name>,
    pub client_id: Box<str>,
    pub client_host: Box<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub protocol_type: Name,
    pub protocols: Protocols,
    pub assignment: Box<[u8]>,
    /// A join or a sync that waits for its answer.
    pub join: Option<Token>,
    pub sync: Option<Token>,
    /// Version of the parked join, which decides how its answer looks.
    pub version: i16,
    /// Not in any generation yet: then even waiting does not keep it alive for ever.
    pub is_new: bool,
    /// Order in which members came.
    pub arrival: u64,
}

impl Member {
    /// What the member says in a protocol.
    pub fn metadata(&self, protocol: &str) -> &[u8] {
        let found = self.protocols.iter().find(|(name, _)| **name == *protocol);
        found.map_or(&[], |(_, metadata)| metadata)
    }

    /// Whether a join changes nothing: the same protocols, in the same order, saying the same.
    pub fn matches(&self, protocols: &Protocols) -> bool {
        self.protocols == *protocols
    }

    /// A member that waits for an answer need not be heard of.
    pub fn is_excused(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }
}
