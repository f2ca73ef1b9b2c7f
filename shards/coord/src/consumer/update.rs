//! A member's word changes the group: one decision from subscription to reconciled member.
//!
//! ```text
//! member record ─► expressions ─► epoch + 1, if subscriptions or topics changed
//!                                   ─► target assignment ─► the member's next step
//! ```
//!
//! Nothing changes until the records are applied: a refusal leaves everything as it was.

use std::collections::{BTreeMap, BTreeSet};

use wire::ErrorCode;

use super::member::{JOIN_EPOCH, STATIC_LEAVE_EPOCH};
use super::reconcile::{Goal, reconcile};
use super::regex::{REFRESH_MIN_MS, resolve};
use super::subscription::{View, metadata_hash};
use super::{ClassicFace, ConsumerGroup, Held, Member, MemberState, Resolved, records, target};
use crate::Name;
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::parts::Parts;
use crate::request::Decision;
use crate::timers::{Key, Kind};

/// What a member says, by either protocol.
#[derive(Clone, Debug)]
pub(crate) struct Update<'r> {
    pub group: &'r str,
    pub member: Name,
    /// Epoch of a consumer; not looked at for a classic member.
    pub epoch: i32,
    /// Whether the member may be new.
    pub joins: bool,
    pub instance: Option<&'r str>,
    pub rack: Option<&'r str>,
    pub rebalance_timeout_ms: Option<i32>,
    /// `None` leaves it as it was; so do the following.
    pub topics: Option<BTreeSet<Name>>,
    pub regex: Option<&'r str>,
    pub assignor: Option<&'r str>,
    pub owned: Option<Parts>,
    pub classic: Option<ClassicFace>,
}

/// The member before and after.
pub(crate) struct Updated {
    pub before: Member,
    pub after: Member,
    /// The id that a static member had before, if this one takes its place.
    pub replaced: Option<Name>,
}

impl Coordinator {
    /// Carries out what a member says.
    pub(crate) fn update_member(
        &mut self,
        update: &Update<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Result<Updated, Refusal> {
        let none = ConsumerGroup::default();
        let group = match self.groups.get(update.group) {
            Some(Group::Consumer(group)) => group,
            _ => &none,
        };
        let (offered, limit) = (&self.config.assignors, self.config.consumer_members_max);
        let interval_ms = self.assignment_interval_ms(update.group);
        let mut made = Decision::default();
        let updated =
            group.decide(update, ctx, &Rules { offered, limit, interval_ms }, &mut made)?;
        out.records.append(&mut made.records);
        self.apply_new(out, ctx.now_ms);
        self.time_member(update.group, &updated, ctx.now_ms);
        if let Some(Group::Consumer(group)) = self.groups.get_mut(update.group) {
            group.topics_version = Some(ctx.topics.version());
        }
        Ok(updated)
    }

    /// Sets the member's deadlines.
    fn time_member(&mut self, group: &str, updated: &Updated, now_ms: i64) {
        let Some(group) = self.groups.get_key_value(group).map(|(id, _)| id.clone()) else {
            return;
        };
        let member = &updated.after;
        if let Some(old) = &updated.replaced {
            self.cancel_member(&group, old);
        }
        if member.classic.is_none() {
            let due_ms = now_ms + i64::from(self.session_timeout_ms(&group));
            self.timers.set(Key::member(Kind::Session, &group, &member.id), due_ms);
            let revoke = Key::member(Kind::Revoke, &group, &member.id);
            if member.state != MemberState::Unrevoked {
                self.timers.cancel(&revoke);
            } else if !member.stands_the_same(&updated.before) {
                self.timers.set(revoke, now_ms + i64::from(member.rebalance_timeout_ms));
            }
        }
    }

    pub(crate) fn cancel_member(&mut self, group: &Name, member: &Name) {
        for kind in [Kind::Session, Kind::Revoke, Kind::MemberJoin, Kind::MemberSync] {
            self.timers.cancel(&Key::member(kind, group, member));
        }
    }
}

/// Settings that a decision needs.
struct Rules<'a> {
    offered: &'a [crate::assign::Assignor],
    limit: usize,
    interval_ms: i64,
}

impl ConsumerGroup {
    fn decide(
        &self,
        update: &Update<'_>,
        ctx: &Context<'_>,
        rules: &Rules<'_>,
        out: &mut Decision,
    ) -> Result<Updated, Refusal> {
        self.has_room_for(update, rules.limit)?;
        let (before, replaced) = self.find(update)?;
        if let Some(old) = &replaced {
            self.replace(update.group, old, &before, out);
        }
        let mut after = spoken(&before, update, ctx);
        let is_new = !self.members.contains_key(&before.id) && replaced.is_none();
        if is_new || !after.says_the_same(&before) {
            out.records.push(records::member(update.group, &after));
        }
        let regexes = self.refresh_regexes(update.group, &before, &after, ctx, out)?;

        let mut view = View::of(self);
        if let Some(old) = &replaced {
            view.members.remove(&**old);
        }
        view.members.insert(&after.id, &after);
        view.regexes = regexes.iter().map(|(text, it)| (&**text, it)).collect();
        let changed = is_new
            || after.topics != before.topics
            || after.regex != before.regex
            || target::preferred(&view, rules.offered)
                != target::preferred(&View::of(self), rules.offered)
                && !self.is_empty();
        let looked = self.topics_version == Some(ctx.topics.version()) && regexes == self.regexes;
        let mut epoch = self.epoch;
        let mut topics = None;
        if changed || !looked {
            let found = view.topics(ctx);
            let hash = metadata_hash(&found);
            if changed || hash != self.metadata_hash {
                epoch += 1;
                out.records.push(records::epoch(update.group, epoch, hash));
            }
            topics = Some(found);
        }

        let mut assignment_epoch = self.assignment_epoch;
        let before_id = replaced.as_ref().unwrap_or(&before.id);
        let mut goal_parts = self.targets.get(before_id).cloned().unwrap_or_default();
        let due = self.assignment_ms == 0
            || ctx.now_ms.saturating_sub(self.assignment_ms) >= rules.interval_ms
            || ctx.now_ms < self.assignment_ms;
        if epoch > self.assignment_epoch && due {
            let topics = topics.unwrap_or_else(|| view.topics(ctx));
            let old = self.targets_as(replaced.as_ref(), &after.id);
            let assignor = target::preferred(&view, rules.offered);
            for (id, parts) in target::compute(&view, &old, &topics, assignor) {
                let same = old.get(&*id).is_some_and(|old| **old == parts);
                if !same {
                    out.records.push(records::target(update.group, &id, &parts));
                }
                if id == after.id {
                    goal_parts = parts;
                }
            }
            out.records.push(records::target_epoch(update.group, epoch, ctx.now_ms));
            assignment_epoch = epoch;
        }

        let goal = Goal {
            epoch: assignment_epoch,
            target: &goal_parts,
            owned: update.owned.as_ref(),
            is_free: &|topic, partition| self.owner(topic, partition).is_none(),
        };
        let next = reconcile(&after, &goal)?;
        if is_new || !next.stands_the_same(&after) {
            out.records.push(records::current(update.group, &next));
        }
        after = next;
        Ok(Updated { before, after, replaced })
    }

    fn has_room_for(&self, update: &Update<'_>, limit: usize) -> Result<(), Refusal> {
        let known = self.members.contains_key(&update.member)
            || update.instance.is_some_and(|instance| self.statics.contains_key(instance));
        if known || self.members.len() < limit {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::GroupMaxSizeReached,
            format!("The consumer group has reached its maximum capacity of {limit} members."),
        ))
    }

    /// The member as it is, and the id it takes over if it is a static one that comes back.
    fn find(&self, update: &Update<'_>) -> Result<(Member, Option<Name>), Refusal> {
        let Some(instance) = update.instance else {
            let member = match self.members.get(&update.member) {
                Some(member) => member.clone(),
                None if update.joins => Member::new(update.member.clone()),
                None => self.member(&update.member)?.clone(),
            };
            check_epoch(&member, update)?;
            return Ok((member, None));
        };
        let known = self.static_member(instance);
        match (known, update.joins) {
            (None, true) => Ok((Member::new(update.member.clone()), None)),
            (None, false) => Err(Refusal::new(
                ErrorCode::UnknownMemberId,
                format!("Instance id {instance} is unknown."),
            )),
            (Some(known), true) if known.id == update.member => {
                // The same incarnation joins again.
                check_epoch(known, update)?;
                Ok((known.clone(), None))
            }
            (Some(known), true) => {
                let both_consumers = update.classic.is_none() && known.classic.is_none();
                if both_consumers && known.epoch != STATIC_LEAVE_EPOCH {
                    return Err(Refusal::new(
                        ErrorCode::UnreleasedInstanceId,
                        format!(
                            "Static member {} with instance id {instance} cannot join the group \
                             because the instance id is owned by {} member.",
                            update.member, known.id
                        ),
                    ));
                }
                let mut member = known.clone();
                member.id = update.member.clone();
                member.epoch = 0;
                member.previous_epoch = 0;
                let parts = known.assigned.parts();
                member.assigned = parts.iter().map(|(topic, part)| (topic, part, 0)).collect();
                Ok((member, Some(known.id.clone())))
            }
            (Some(known), false) => {
                check_instance(known, &update.member, instance)?;
                check_epoch(known, update)?;
                Ok((known.clone(), None))
            }
        }
    }

    /// A static member's place goes over to its new id, with what it holds.
    fn replace(&self, group: &str, old: &Name, new: &Member, out: &mut Decision) {
        records::no_member(group, old, &mut out.records);
        out.records.push(records::member(group, new));
        let parts = self.targets.get(old).cloned().unwrap_or_default();
        out.records.push(records::target(group, &new.id, &parts));
        out.records.push(records::current(group, new));
    }

    fn targets_as<'a>(
        &'a self,
        replaced: Option<&Name>,
        new: &'a Name,
    ) -> BTreeMap<&'a str, &'a Parts> {
        let renamed = |id: &'a Name| if Some(id) == replaced { new } else { id };
        self.targets.iter().map(|(id, parts)| (&**renamed(id), parts)).collect()
    }

    /// The group's expressions after this: those nobody uses go, new ones are resolved, the others again
    /// if topics have changed since, though not more often than every ten seconds.
    fn refresh_regexes(
        &self,
        group: &str,
        before: &Member,
        after: &Member,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Result<BTreeMap<Name, Resolved>, Refusal> {
        let mut regexes = self.regexes.clone();
        if let Some(old) = before.regex.as_ref().filter(|old| after.regex.as_ref() != Some(*old)) {
            let others =
                |member: &Member| member.id != before.id && member.regex.as_ref() == Some(old);
            if !self.members.values().any(others) && regexes.remove(old).is_some() {
                out.records.push(records::no_regex(group, old));
            }
        }
        let used = self.members.values().filter(|member| member.id != after.id);
        let used: BTreeSet<&Name> =
            used.chain([after]).filter_map(|it| it.regex.as_ref()).collect();
        for text in used {
            let known = regexes.get(text);
            let stale = known.is_none_or(|known| {
                known.version != ctx.topics.version()
                    && ctx.now_ms.saturating_sub(known.resolved_ms) >= REFRESH_MIN_MS
            });
            if !stale {
                continue;
            }
            let resolved = resolve(text, ctx)?;
            if known.map(|known| &known.topics) != Some(&resolved.topics) || known.is_none() {
                out.records.push(records::regex(group, text, &resolved));
                regexes.insert(text.clone(), resolved);
            }
        }
        Ok(regexes)
    }
}

/// The member with what it says now.
fn spoken(before: &Member, update: &Update<'_>, ctx: &Context<'_>) -> Member {
    let mut after = before.clone();
    if let Some(instance) = update.instance {
        after.instance = Some(Name::from(instance));
    }
    if let Some(rack) = update.rack {
        after.rack = Some(Name::from(rack));
    }
    if let Some(timeout_ms) = update.rebalance_timeout_ms {
        after.rebalance_timeout_ms = timeout_ms;
    }
    if let Some(topics) = &update.topics {
        after.topics = topics.clone();
    }
    if let Some(regex) = update.regex {
        after.regex = (!regex.is_empty()).then(|| Name::from(regex));
    }
    if let Some(assignor) = update.assignor {
        after.assignor = Some(Name::from(assignor));
    }
    after.client_id = ctx.client_id.into();
    after.client_host = ctx.client_host.into();
    after.classic = update.classic.clone();
    after
}

pub(crate) fn check_instance(known: &Member, member: &str, instance: &str) -> Result<(), Refusal> {
    if *known.id == *member {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::FencedInstanceId,
        format!(
            "Static member {member} with instance id {instance} was fenced by member {}.",
            known.id
        ),
    ))
}

/// A member may be one epoch behind if the answer that raised it was lost: then it holds no more than
/// it had.
fn check_epoch(member: &Member, update: &Update<'_>) -> Result<(), Refusal> {
    if update.epoch == JOIN_EPOCH || update.classic.is_some() || update.epoch == member.epoch {
        return Ok(());
    }
    let held = |owned: &Parts, held: &Held| owned.is_subset_of(&held.parts());
    let one_behind = update.epoch < member.epoch
        && update.epoch == member.previous_epoch
        && update.owned.as_ref().is_some_and(|owned| held(owned, &member.assigned));
    if one_behind {
        return Ok(());
    }
    let which = if update.epoch > member.epoch { "greater" } else { "smaller" };
    Err(Refusal::new(
        ErrorCode::FencedMemberEpoch,
        format!(
            "The consumer group member has a {which} member epoch ({}) than the one known by the \
             group coordinator ({}). The member must abandon all its partitions and rejoin.",
            update.epoch, member.epoch
        ),
    ))
}
