//! A member's word changes the group: one decision from subscription to reconciled member.
//!
//! ```text
//! member record ─► expressions ─► epoch + 1, if subscriptions or topics changed
//!                                   ─► target assignment ─► the member's next step
//! ```
//!
//! Nothing changes until the records are applied: a refusal leaves everything as it was.

use std::collections::{BTreeMap, BTreeSet};

use wire::{ErrorCode, Uuid};

use super::member::{JOIN_EPOCH, STATIC_LEAVE_EPOCH};
use super::reconcile::{Goal, reconcile};
use super::regex::{REFRESH_MIN_MS, compile, resolve};
use super::subscription::{View, metadata_hash};
use super::{ClassicFace, ConsumerGroup, Held, Member, MemberState, Resolved, records, target};
use crate::Name;
use crate::assign::Assignor;
use crate::classic::ClassicGroup;
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::parts::Parts;
use crate::record::Record;
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

/// What has to happen to a group before its member can be updated.
#[derive(Debug)]
pub(crate) enum Opening {
    /// Nothing: it is a consumer group, or not there.
    AsItIs,
    /// An empty classic group makes room.
    InPlaceOfEmpty,
    /// A classic group becomes this one.
    Upgrade(Box<ConsumerGroup>),
}

impl Opening {
    fn records(&self, group: &str, records: &mut Vec<Record<'static>>) {
        match self {
            Opening::AsItIs => {}
            Opening::InPlaceOfEmpty => records.push(ClassicGroup::tombstone(group)),
            Opening::Upgrade(upgraded) => {
                records.push(ClassicGroup::tombstone(group));
                upgraded.records(group, records);
            }
        }
    }
}

/// What a new group's first epoch is one more than.
const EPOCH_BEFORE_ANY: i32 = 1;

/// The member before and after.
pub(crate) struct Updated {
    pub before: Member,
    pub after: Member,
    /// The id that a static member had before, if this one takes its place.
    pub replaced: Option<Name>,
    /// Expressions were looked at with the cluster's topics of now.
    resolved: bool,
}

impl Coordinator {
    /// Carries out what a member says, in a group that `opening` makes first.
    pub(crate) fn update_member(
        &mut self,
        update: &Update<'_>,
        opening: Opening,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Result<Updated, Refusal> {
        let none = ConsumerGroup::default();
        let group = match (&opening, self.groups.get(update.group)) {
            (Opening::Upgrade(upgraded), _) => upgraded,
            (_, Some(Group::Consumer(group))) => group,
            _ => &none,
        };
        let rules = Rules {
            offered: &self.config.assignors,
            limit: self.config.consumer_members_max,
            interval_ms: self.assignment_interval_ms(update.group),
            regex_ms: self.config.regex_refresh_interval_ms,
        };
        let mut made = Decision::default();
        opening.records(update.group, &mut made.records);
        let updated = group.decide(update, ctx, &rules, &mut made)?;
        self.fits_in_a_batch(&made.records)?;
        // Nothing can refuse it any more.
        if let Opening::Upgrade(upgraded) = &opening {
            self.take_over_classic(update.group, upgraded, ctx.now_ms, out);
        }
        out.records.append(&mut made.records);
        self.apply_new(out, ctx.now_ms);
        self.time_member(update.group, &updated, ctx.now_ms);
        if let Some(Group::Consumer(group)) = self.groups.get_mut(update.group) {
            group.looked.topics_version = Some(ctx.topics.version());
            if updated.resolved {
                group.looked.regexes = Some((ctx.topics.version(), ctx.now_ms));
            }
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
    offered: &'a [Assignor],
    limit: usize,
    interval_ms: i64,
    regex_ms: i64,
}

/// A member's word, on the way to a decision.
struct Said<'a> {
    update: &'a Update<'a>,
    before: &'a Member,
    after: &'a Member,
    replaced: Option<&'a Name>,
    /// Neither the member nor what it says is new.
    is_old_news: bool,
}

/// Where the group stands after it.
struct Outcome {
    assignment_epoch: i32,
    target: Parts,
    regexes: BTreeMap<Name, Resolved>,
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
        let after = spoken(&before, update, ctx);
        let is_new = !self.members.contains_key(&before.id) && replaced.is_none();
        let differs = is_new || !after.says_the_same(&before);
        if differs {
            out.records.push(records::member(update.group, &after));
        }
        let said = Said {
            update,
            before: &before,
            after: &after,
            replaced: replaced.as_ref(),
            is_old_news: !differs && replaced.is_none(),
        };
        let resolves = after.regex != before.regex || self.is_resolving_due(ctx, rules.regex_ms);
        let outcome = self.outcome(&said, resolves, ctx, rules, out)?;
        let next = self.next_step(&said, &outcome, ctx)?;
        if is_new || !next.stands_the_same(&after) {
            out.records.push(records::current(update.group, &next));
        }
        Ok(Updated { before, after: next, replaced, resolved: resolves })
    }

    /// Raises the group's epoch and makes a target assignment, where there is a reason to. Most
    /// heartbeats have none.
    fn outcome(
        &self,
        said: &Said<'_>,
        resolves: bool,
        ctx: &Context<'_>,
        rules: &Rules<'_>,
        out: &mut Decision,
    ) -> Result<Outcome, Refusal> {
        let group = said.update.group;
        let had = said.replaced.unwrap_or(&said.before.id);
        let mut outcome = Outcome {
            assignment_epoch: self.assignment_epoch,
            target: self.targets.get(had).cloned().unwrap_or_default(),
            regexes: BTreeMap::new(),
        };
        let looked = self.looked.topics_version == Some(ctx.topics.version()) && !resolves;
        let due = self.is_assigning_due(ctx.now_ms, rules.interval_ms);
        let behind = self.epoch > self.assignment_epoch && due;
        outcome.regexes = match resolves {
            true => self.resolve_regexes(said, ctx, out)?,
            false => self.regexes.clone(),
        };
        if said.is_old_news && looked && !behind {
            return Ok(outcome);
        }
        let mut view = View::of(self);
        if let Some(old) = said.replaced {
            view.members.remove(&**old);
        }
        view.members.insert(&said.after.id, said.after);
        view.regexes = outcome.regexes.iter().map(|(text, it)| (&**text, it)).collect();
        let topics = view.topics(ctx.topics);
        let assignor = target::preferred(&view, rules.offered);

        let mut epoch = self.epoch.max(EPOCH_BEFORE_ANY);
        let hash = metadata_hash(&topics);
        if self.is_changed(said, assignor, rules) || hash != self.metadata_hash {
            epoch += 1;
            out.records.push(records::epoch(group, epoch, hash));
        }
        if epoch > self.assignment_epoch && due {
            let old = self.targets_as(said.replaced, &said.after.id);
            for (id, parts) in target::compute(&view, &old, &topics, assignor) {
                if old.get(&*id).is_none_or(|old| **old != parts) {
                    out.records.push(records::target(group, &id, &parts));
                }
                if id == said.after.id {
                    outcome.target = parts;
                }
            }
            out.records.push(records::target_epoch(group, epoch, ctx.now_ms));
            outcome.assignment_epoch = epoch;
        }
        Ok(outcome)
    }

    /// Whether what a member says makes the group assign anew.
    fn is_changed(&self, said: &Said<'_>, assignor: Assignor, rules: &Rules<'_>) -> bool {
        let joined = !self.members.contains_key(&said.before.id) && said.replaced.is_none();
        let (before, after) = (said.before, said.after);
        joined
            || after.topics != before.topics
            || after.regex != before.regex
            || after.assignor != before.assignor
                && assignor != target::preferred(&View::of(self), rules.offered)
    }

    /// Target assignments keep a distance, so that many members that come at once cost one.
    fn is_assigning_due(&self, now_ms: i64, interval_ms: i64) -> bool {
        let since_ms = now_ms.saturating_sub(self.assignment_ms);
        self.assignment_ms == 0 || since_ms >= interval_ms || since_ms < 0
    }

    fn is_resolving_due(&self, ctx: &Context<'_>, regex_ms: i64) -> bool {
        if self.regexes.is_empty() {
            return false;
        }
        self.looked.regexes.is_none_or(|(version, at_ms)| {
            let since_ms = ctx.now_ms.saturating_sub(at_ms);
            version != ctx.topics.version() && since_ms >= REFRESH_MIN_MS || since_ms >= regex_ms
        })
    }

    fn next_step(
        &self,
        said: &Said<'_>,
        outcome: &Outcome,
        ctx: &Context<'_>,
    ) -> Result<Member, Refusal> {
        let after = said.after;
        if said.is_old_news && after.has_reached(outcome.assignment_epoch) {
            return Ok(after.clone());
        }
        // The target may be older than the subscription: nothing is given that is not wanted.
        let by_regex = after.regex.as_ref().and_then(|regex| outcome.regexes.get(regex));
        let names = after.topics.iter().chain(by_regex.into_iter().flat_map(|it| &it.topics));
        let wanted: BTreeSet<Uuid> = names.filter_map(|name| ctx.topics.id_of(name)).collect();
        let target = outcome.target.iter().filter(|(topic, _)| wanted.contains(topic)).collect();
        let goal = Goal {
            epoch: outcome.assignment_epoch,
            target: &target,
            owned: said.update.owned.as_ref(),
            is_free: &|topic, partition| self.owner(topic, partition).is_none(),
        };
        reconcile(after, &goal)
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
                member.forget_epochs();
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

    /// The group's expressions after this: those nobody uses go, the others are resolved with the
    /// cluster's topics of now.
    fn resolve_regexes(
        &self,
        said: &Said<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Result<BTreeMap<Name, Resolved>, Refusal> {
        let group = said.update.group;
        let others = self.members.values().filter(|it| it.id != said.before.id);
        let others = others.filter(|it| Some(&it.id) != said.replaced);
        let used: BTreeSet<&Name> =
            others.chain([said.after]).filter_map(|it| it.regex.as_ref()).collect();
        for text in self.regexes.keys().filter(|text| !used.contains(text)) {
            out.records.push(records::no_regex(group, text));
        }
        let news = said.after.regex.as_ref().filter(|_| said.after.regex != said.before.regex);
        let is_current = self.looked.regexes.is_some_and(|(at, _)| at == ctx.topics.version());
        let mut regexes = BTreeMap::new();
        for text in used {
            let known = self.regexes.get(text);
            if news == Some(text) {
                compile(text)?;
            }
            if let Some(known) = known.filter(|_| is_current) {
                regexes.insert(text.clone(), known.clone());
                continue;
            }
            let resolved = match resolve(text, ctx) {
                Ok(resolved) => resolved,
                // One that another broker took, whose log this was: it goes on standing for what it
                // did.
                Err(_) => known.cloned().unwrap_or_default(),
            };
            let same = known.filter(|known| known.topics == resolved.topics);
            if same.is_none() {
                out.records.push(records::regex(group, text, &resolved));
            }
            regexes.insert(text.clone(), same.cloned().unwrap_or(resolved));
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

/// A member may be one epoch behind if the answer that raised it was lost: then it holds no more
/// than it had.
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
