//! Between the protocols: a classic group becomes a consumer group and back, and members of both
//! live in one group meanwhile.
//!
//! ```text
//!                    first member that heartbeats by KIP-848
//!   classic group ──────────────────────────────────────────► consumer group
//!                 ◄──────────────────────────────────────────   with classic members
//!                    last such member goes
//! ```
//!
//! A classic member of a consumer group reads its epoch as a generation, joins when the coordinator
//! wants it to move, and fetches its partitions by SyncGroup in the consumers' embedded format.

mod classic_member;
mod downgrade;
mod embedded;
mod upgrade;
