//! What a group subscribes to, and what those topics look like.

use std::collections::BTreeMap;

use ahash::AHashSet;

use super::{ConsumerGroup, Member, Resolved};
use crate::Name;
use crate::context::{TopicInfo, Topics};
use crate::hash;

/// The members and expressions of a group as a change would leave them.
pub(crate) struct View<'a> {
    pub members: BTreeMap<&'a str, &'a Member>,
    pub regexes: BTreeMap<&'a str, &'a Resolved>,
}

impl<'a> View<'a> {
    pub fn of(group: &'a ConsumerGroup) -> Self {
        View {
            members: group.members.iter().map(|(id, member)| (&**id, member)).collect(),
            regexes: group.regexes.iter().map(|(text, it)| (&**text, it)).collect(),
        }
    }

    /// The topics of one member, by name and by expression, some of them perhaps twice.
    pub fn topics_of<'v>(&'v self, member: &'v Member) -> impl Iterator<Item = &'v Name> {
        let resolved = member.regex.as_deref().and_then(|regex| self.regexes.get(regex));
        let by_regex = resolved.into_iter().flat_map(|resolved| resolved.topics.iter());
        member.topics.iter().chain(by_regex)
    }

    /// The topics of all members that exist.
    pub fn topics(&self, cluster: &dyn Topics) -> BTreeMap<Name, TopicInfo> {
        let mut names: AHashSet<&Name> = AHashSet::new();
        for member in self.members.values() {
            names.extend(member.topics.iter());
        }
        // What an expression stands for counts once, however many members have it.
        let used: AHashSet<&str> =
            self.members.values().filter_map(|member| member.regex.as_deref()).collect();
        let resolved = used.into_iter().filter_map(|regex| self.regexes.get(regex));
        names.extend(resolved.flat_map(|resolved| resolved.topics.iter()));
        let known = names.into_iter().filter_map(|name| {
            let info = cluster.by_name(name)?;
            Some((name.clone(), info))
        });
        known.collect()
    }
}

/// The hash of a group's topics: 0 if there are none.
pub(crate) fn metadata_hash(topics: &BTreeMap<Name, TopicInfo>) -> i64 {
    hash::of_topics(topics.iter().map(|(name, info)| (&**name, info)))
}
