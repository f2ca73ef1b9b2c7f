//! How one member moves towards the target assignment.
//!
//! ```text
//!              target gives and takes                 gave everything up
//!   Stable ───────────────────────────► Unrevoked ─────────────────────────┐
//!     ▲  │                                                                  ▼
//!     │  └── target gives what others hold ─────────► Unreleased ◄──────────┤ others still hold some
//!     └───────────────────────────────────────────────────┴─────────────────┘ all is free
//! ```
//!
//! A partition is given to a member only when nobody holds it, not even to give it up.

use wire::{ErrorCode, Uuid};

use super::{Held, Member, MemberState};
use crate::error::Refusal;
use crate::parts::Parts;

/// What a member is measured against.
pub(crate) struct Goal<'a> {
    pub epoch: i32,
    pub target: &'a Parts,
    /// What the member says it holds; `None` if it says nothing.
    pub owned: Option<&'a Parts>,
    /// Whether nobody holds a partition.
    pub is_free: &'a dyn Fn(Uuid, i32) -> bool,
}

/// The member after its next step, or as it is.
pub(crate) fn reconcile(member: &Member, goal: &Goal<'_>) -> Result<Member, Refusal> {
    match member.state {
        MemberState::Stable if member.epoch == goal.epoch && has_nothing_more(member, goal) => {
            Ok(member.clone())
        }
        MemberState::Stable | MemberState::Unreleased => Ok(next(member, member.epoch, goal)),
        MemberState::Unrevoked if holds_any(&member.revoking, goal.owned) => Ok(member.clone()),
        // It gave up what it had to: that is the next epoch for it.
        MemberState::Unrevoked => Ok(next(member, member.epoch + 1, goal)),
        MemberState::Unknown => match goal.owned {
            Some(owned) if owned.is_empty() => Ok(next(member, goal.epoch, goal)),
            _ => Err(Refusal::new(
                ErrorCode::FencedMemberEpoch,
                "The consumer group member is in a unknown state. The member must abandon all its \
                 partitions and rejoin.",
            )),
        },
    }
}

/// It may have: partitions of topics that it has just turned away from.
fn has_nothing_more(member: &Member, goal: &Goal<'_>) -> bool {
    member.assigned.iter().all(|(topic, partition, _)| goal.target.contains(topic, partition))
}

/// A member that says nothing may hold all it had.
fn holds_any(revoking: &Held, owned: Option<&Parts>) -> bool {
    owned.is_none_or(|owned| owned.iter().any(|(topic, part)| revoking.contains(topic, part)))
}

fn next(member: &Member, epoch: i32, goal: &Goal<'_>) -> Member {
    let mut kept = Held::default();
    let mut revoking = Held::default();
    for (topic, partition, since) in member.assigned.iter() {
        let list = match goal.target.contains(topic, partition) {
            true => &mut kept,
            false => &mut revoking,
        };
        list.insert(topic, partition, since);
    }
    let mut updated = member.clone();
    updated.previous_epoch = member.epoch;
    if !revoking.is_empty() && holds_any(&revoking, goal.owned) {
        updated.state = MemberState::Unrevoked;
        updated.epoch = epoch;
        updated.assigned = kept;
        updated.revoking = revoking;
        return updated;
    }
    let mut waits = false;
    for (topic, partition) in goal.target.iter() {
        if member.assigned.contains(topic, partition) {
            continue;
        }
        match (goal.is_free)(topic, partition) {
            true => kept.insert(topic, partition, goal.epoch),
            false => waits = true,
        }
    }
    updated.state = if waits { MemberState::Unreleased } else { MemberState::Stable };
    updated.epoch = goal.epoch;
    updated.assigned = kept;
    updated.revoking = Held::default();
    updated
}
